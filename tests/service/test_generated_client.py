"""A typed client generated from the OpenAPI document compiles and works with the service."""

from __future__ import annotations

import compileall
import importlib
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.stack import Stack, png

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name of the generated package, which can be imported."""
    folder = tmp_path_factory.mktemp("generated")
    command = [str(Path(sys.executable).with_name("openapi-python-client")), "generate"]
    source = ["--path", str(ROOT / "docs/openapi.json"), "--meta", "none"]
    done = subprocess.run(
        [*command, *source, "--output-path", str(folder / "aps_generated")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert compileall.compile_dir(folder, quiet=1)
    sys.path.insert(0, str(folder))
    yield "aps_generated"
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.startswith("aps_generated")]:
        del sys.modules[name]


def test_every_operation_is_a_function_with_a_short_name(generated: str) -> None:
    package = importlib.import_module(f"{generated}.api")
    (place,) = package.__path__
    names = {path.stem for path in Path(place).glob("*/*.py")} - {"__init__"}
    assert {
        *("restore", "estimate_restore", "list_jobs", "get_job", "cancel_job", "get_artifact"),
        *("store_picture", "list_deliveries", "get_capabilities", "livez"),
    } <= names


def test_it_submits_lists_and_cancels(generated: str, stack: Stack) -> None:
    def module(name: str) -> ModuleType:
        return importlib.import_module(f"{generated}.{name}")

    models, types = module("models"), module("types")
    with module("client").Client(base_url=stack.url) as client:
        spec = models.RestoreSpec(operator=models.Denoise(), preset=models.RestoreSpecPreset.FAST)
        asked = models.RestoreEstimateRequest(spec=spec, image_size=[64, 48])
        found = module("api.tasks.estimate_restore").sync(client=client, body=asked)
        assert found.output_size == [64, 48]
        picture = types.File(io.BytesIO(png(64, 48)), "image.png", "image/png")
        form = models.RestoreForm(image=picture, spec=spec)
        job = module("api.tasks.restore").sync(client=client, body=form)
        assert (job.task, job.output_size) == ("restore", [64, 48])
        assert job.spec["preset"] == "fast"
        page = module("api.jobs.list_jobs").sync(client=client, task=["restore"], limit=1)
        assert [each.id for each in page.jobs] == [job.id]
        canceled = module("api.jobs.cancel_job").sync(job.id, client=client)
        assert canceled.id == job.id
        problem = module("api.jobs.get_job").sync("nonesuch", client=client)
        assert (type(problem).__name__, problem.code) == ("Problem", "not_found")
