"""README and documentation build without warnings, and all their code blocks run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
import pytest
from PIL import Image

from aps_cli.main import main
from aps_core.capabilities import operator_table
from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.operators import OperatorSpec
from aps_core.samplers import SamplerSpec
from aps_core.tasks import TaskSpec
from service.launch.embedded_server import running_server
from service.launch.processes import free_port, running_service
from service.settings import Settings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:\*Not run by the tests: ([^\n]+)\*\n\n)?```(python|bash)\n(.*?)```", re.DOTALL
)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
SHOWN_AS = "http://127.0.0.1:8000"
WARM = str(ROOT / "tests/warm.py")
"""Starts Python programs quickly: importing torch takes longer than most commands shown."""


@dataclass(frozen=True)
class Block:
    """A code block; ``reason`` explains why it cannot run in a test."""

    reason: str
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page.read_text())]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Place:
    """A reader's environment: a folder with a photograph, ``aps`` and ``python`` on the path, and a
    running service.
    """

    folder: Path
    url: str
    environment: dict[str, str]
    server: Path
    """Socket of ``tests/warm.py``."""

    def run(self, block: Block) -> str:
        code = block.code.replace(SHOWN_AS, self.url)
        command = (
            [sys.executable, "-S", WARM, "run", str(self.server), "-c", code]
            if block.language == "python"
            else ["bash", "-euo", "pipefail", "-c", code]
        )
        extra = {"APS_SERVER": self.url} if block.language == "python" else {}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **extra},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """``aps`` and ``python`` on the path and a running service, for all pages."""
    folder = tmp_path_factory.mktemp("home")
    programs, state = folder / "bin", folder / "state"
    programs.mkdir()
    state.mkdir()
    server = folder / "warm"
    for program, words in (
        ("aps", [sys.executable, "-S", WARM, "run", str(server), "-m", "aps_cli.main"]),
        ("python", [sys.executable]),
    ):
        (programs / program).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / program).chmod(0o755)
    # What is shown takes the prior's recommended settings; here every process recommends small
    # ones.
    (programs / "sitecustomize.py").write_text(
        "from aps_core.priors.embedded.image import EmbeddedPrior\n"
        "from aps_core.priors.embedded.text import EmbeddedTextPrior\n"
        "EmbeddedPrior.recommended.update(steps=2, inner_steps=2)\n"
        "EmbeddedPrior.tuned['carried_evidence'].update(steps=2, inner_steps=2)\n"
        "EmbeddedTextPrior.recommended.update(steps=8, max_new_tokens=8)\n"
    )
    settings = Settings(
        data_dir=state,
        artifacts_dir=state / "artifacts",
        threads=1,
        priors=["embedded", "embedded_denoiser", "embedded_photographs", "embedded_text"],
    )
    paths = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{programs}",
        "XDG_STATE_HOME": str(state),
        "OMP_NUM_THREADS": "1",  # as the worker: equal seeds and threads give equal bytes
    }
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYTHONPATH", paths["PYTHONPATH"])
        settings = settings.model_copy(
            update={"redis_url": stack.enter_context(running_server(settings))}
        )
        url, _ = stack.enter_context(
            running_service(
                settings, embedded=False, port=free_port(), log_file=state / "service.log"
            )
        )
        clean = {
            variable: value
            for variable, value in os.environ.items()
            if not variable.startswith("APS_")
        }
        environment = {**clean, **paths, "APS_REDIS_URL": settings.redis_url}
        stack.enter_context(warm_python(server, environment))
        yield Place(folder, url, environment, server)


@contextmanager
def warm_python(socket: Path, environment: dict[str, str]) -> Iterator[None]:
    """Starts ``tests/warm.py``."""
    command = [sys.executable, WARM, "serve", str(socket)]
    with subprocess.Popen(command, env=environment) as p:
        try:
            while not socket.exists():
                assert p.poll() is None
                time.sleep(0.05)
            yield
        finally:
            p.terminate()


@pytest.fixture
def place(home: Place, tmp_path: Path) -> Place:
    """A folder of its own, with pictures: ``aps`` overwrites nothing that another page made."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with Image.open(ROOT / "examples/photos/coffee.png") as photo:
        photo.convert("RGB").resize((96, 96)).save(tmp_path / "photo.jpg")
        photo.convert("RGB").resize((32, 32)).save(tmp_path / "small.png")
        photo.convert("RGB").resize((64, 64)).save(tmp_path / "painting.png")
    mask = Image.new("L", (96, 96), 255)
    mask.paste(0, (30, 30, 66, 66))
    mask.save(tmp_path / "mask.png")
    shutil.copy(ROOT / "examples/photos/castle.png", tmp_path / "castle.png")
    return replace(home, folder=tmp_path)


@pytest.mark.timeout(1200)  # a page starts many processes
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(not block.reason for block in blocks(page))], ids=name
)
def test_every_block_runs(place: Place, page: Path):
    for block in blocks(page):
        if not block.reason:
            place.run(block)


def test_no_command_escapes_the_tests_by_being_indented():
    for page in PAGES:
        assert not re.findall(r"\n\n(    [^ \n].*)", FENCED.sub("", page.read_text())), name(page)


def test_blocks_that_are_not_run_use_existing_options():
    for page in PAGES:
        assert "<!-- not run" not in page.read_text(), "say it visibly: *Not run by the tests: ...*"
        for block in blocks(page):
            for line in block.code.replace("\\\n", " ").splitlines() if block.reason else ():
                words = shlex.split(line, comments=True)
                if words[:1] == ["aps"]:
                    command: click.Command = main
                    for word in words[1:]:
                        if isinstance(command, click.Group) and word in command.commands:
                            command = command.commands[word]
                    known = {
                        option
                        for param in command.params
                        for option in (*param.opts, *param.secondary_opts)
                    }
                    assert {word for word in words if word.startswith("-")} <= known, (
                        f"{page}: {line}"
                    )


def test_a_newcomer_needs_ten_lines_of_python_or_three_commands(place: Place):
    python = next(block for block in blocks(ROOT / "docs/python.md") if block.language == "python")
    assert len(python.code.splitlines()) <= 10
    place.run(python)
    with Image.open(place.folder / "restored.png") as restored:
        assert restored.size == (96, 96)
    submit, state, fetch, *_ = blocks(ROOT / "docs/curl.md")
    assert [block.code.count("curl ") for block in (submit, state, fetch)] == [1, 1, 1]
    place.run(submit)
    assert place.run(state).strip() == "succeeded"
    (place.folder / "result.png").unlink(missing_ok=True)
    place.run(fetch)
    with Image.open(place.folder / "result.png") as fetched:
        assert fetched.size == (96, 96)


def test_the_tests_notice_a_block_that_fails(place: Place):
    for code in (
        "aps restore nowhere.jpg",
        "curl -sf http://127.0.0.1:8000/v1/jobs/x | jq .",
        "false | true",
    ):
        with pytest.raises(AssertionError):
            place.run(Block("", "bash", code))


def test_the_site_builds_without_a_warning(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    text = {
        page: (tmp_path / "site" / page / "index.html").read_text()
        for page in (
            "operators",
            "reference/commands",
            "reference/client",
            "reference/library",
            "algorithm",
        )
    }
    assert not [page for page, html in text.items() if "{{ " in html]
    for task in TaskSpec.family:
        assert f"aps {task}" in text["reference/commands"]
    for method in ("restore", "previews", "verify_webhook", "WaitTimeout"):
        assert method in text["reference/client"]
    assert "model_dump" not in text["reference/library"], "inherited machinery"
    for spec in (*TaskSpec.family.values(), *SamplerSpec.family.values()):
        for field in spec.model_fields if spec.__module__.startswith("aps_core.") else ():
            assert field == "type" or f"<code>{field}</code>" in text["reference/library"], field
    for html in (tmp_path / "site").rglob("*.html"):
        assert not re.search(
            r'(?:src|href)="(?:https?:)?//[^"]+\.(?:js|css|woff2?)', html.read_text()
        ), f"{html} loads from elsewhere"


def test_every_operator_has_a_picture_and_every_task_a_page():
    pictures = {path.stem for path in (ROOT / "docs/gallery").glob("*.webp")}
    ours = {
        name
        for name in OperatorSpec.family
        if OperatorSpec.named(name).__module__.startswith("aps_core")
        and not issubclass(OperatorSpec.named(name), UnknownOperator)  # they degrade nothing
    }
    assert ours - pictures == {"nonlinear_blur"}  # its weights are not shipped
    assert {path.stem for path in (ROOT / "docs/tasks").glob("*.md")} == set(TaskSpec.family)
    assert sum(path.stat().st_size for path in (ROOT / "docs/gallery").iterdir()) < 500_000


def test_the_algorithm_page_names_every_line():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from docs_hooks import ALGORITHM, algorithm
    finally:
        sys.path.pop(0)
    cited = {int(number) for numbers in ALGORITHM for number in numbers.split(", ")}
    assert cited == set(range(4, 25)) - {22}  # lines 1-3 are inputs, line 22 ends the loop
    source = (ROOT / "aps_core/aps.py").read_text().splitlines()
    for row in algorithm().splitlines()[2:]:
        code, number = re.findall(r"\| `(.*)` \(line (\d+)\) \|$", row)[0]
        assert code.replace("\\|", "|") in source[int(number) - 1]


def test_the_readme_has_the_registrys_operators():
    assert operator_table() in (ROOT / "README.md").read_text()


def test_links_of_the_readme_resolve():
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text()):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_json_of_a_result_contains_the_effective_settings(place: Place):
    place.run(
        Block(
            "",
            "bash",
            "aps restore photo.jpg --prior embedded --operator hdr --working-size 64 -o told.png",
        )
    )
    # and so the small settings are in force
    assert json.loads((place.folder / "told.json").read_text())["spec"]["sampler"]["steps"] == 2
