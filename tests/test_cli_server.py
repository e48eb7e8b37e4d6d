"""Commands that use a running service."""

import json

import pytest
from click.testing import CliRunner

from aps_cli.main import main
from aps_core.imaging import images
from tests.stack import Stack, png

SMALL = ["--operator", "denoise", "--sigma", "0.1", "--steps", "3", "--inner-steps", "2"]


@pytest.fixture
def aps(stack: Stack):
    """Runs a command with the service's address in the environment."""
    return lambda *arguments: CliRunner().invoke(
        main, [str(a) for a in arguments], env={"APS_SERVER": stack.url}
    )


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(png())
    return path


def test_local_and_remote_runs_give_the_same_picture(aps, photo, tmp_path):
    there, here = tmp_path / "there.png", tmp_path / "here.png"
    done = aps("restore", photo, *SMALL, "--json", "-o", there)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["files"] == [str(there)]
    assert told["spec"]["sampler"]["steps"] == 3
    assert (
        CliRunner()
        .invoke(main, ["restore", str(photo), *SMALL, "--device", "cpu", "-o", str(here)])
        .exit_code
        == 0
    )
    assert (
        images.open_image(there.read_bytes()).digest()
        == images.open_image(here.read_bytes()).digest()
    )
    assert (
        json.loads(there.with_suffix(".json").read_text())["samples_sha256"]
        == json.loads(here.with_suffix(".json").read_text())["samples_sha256"]
    )


def test_jobs_are_listed_shown_fetched_and_deleted(aps, photo, tmp_path):
    job = json.loads(aps("restore", photo, *SMALL, "--json", "-o", tmp_path / "a.png").stdout)[
        "job"
    ]
    assert json.loads(aps("jobs", "list", "--json").stdout.splitlines()[0])["id"] == job
    assert job in aps("jobs", "list").stdout
    assert json.loads(aps("jobs", "show", job).stdout)["state"] == "succeeded"
    assert aps("jobs", "cancel", job).stdout.strip() == "succeeded"
    assert aps("jobs", "fetch", job, "-o", tmp_path / "b.png").exit_code == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert aps("jobs", "delete", job).exit_code == 0
    gone = aps("jobs", "show", job)
    assert (gone.exit_code, len(gone.stderr.splitlines())) == (2, 1)


def test_errors_of_the_service_are_one_line(aps, photo, tmp_path):
    refused = aps("restore", photo, "--operator", "super_resolution", "--factor", "3")
    assert (refused.exit_code, refused.stderr) == (
        2,
        "aps: Invalid value for '--factor': Input should be 2, 4 or 8. See 'aps restore --help'.\n",
    )
    text = tmp_path / "notes.png"
    text.write_text("hello")
    for given in ([text], [photo, "--mask", text]):
        refused = aps("restore", *given, *SMALL, "-o", tmp_path / "x.png")
        assert refused.exit_code == 2
        assert refused.stderr.startswith(f"aps: {text}: ")
    assert aps("restore", photo, *SMALL, "-o", tmp_path / "x.webp").exit_code == 2


def test_an_unreachable_service_is_exit_code_1(photo):
    done = CliRunner().invoke(
        main, ["restore", str(photo), *SMALL, "--server", "http://127.0.0.1:9"]
    )
    assert done.exit_code == 1
    assert "Is the service running" in done.stderr


@pytest.mark.parametrize(
    "server", ["foo", "localhost:8000", "http://", "http://[x", "http://a:99999"]
)
@pytest.mark.parametrize("command", [("restore", *SMALL), ("diagnose",)])
def test_a_malformed_address_is_refused_at_once(photo, tmp_path, server, command):
    task, *options = command
    (tmp_path / "other.png").write_bytes(png())
    arguments = [task, str(tmp_path), *options, "--server", server]
    done = CliRunner().invoke(main, arguments, env={"APS_SERVER": "bar"})
    assert (done.exit_code, done.stderr) == (
        2,
        "aps: The address of the service must be a URL such as http://127.0.0.1:8000, not"
        f" '{server}'.\n",
    )


def test_doctor_reports_findings_and_advice(stack: Stack, monkeypatch, tmp_path):
    for name, value in (
        ("REDIS_URL", stack.settings.redis_url),
        ("ARTIFACTS_DIR", str(tmp_path)),
        ("DATA_DIR", str(tmp_path)),
    ):
        monkeypatch.setenv(f"APS_{name}", value)
    done = CliRunner().invoke(main, ["doctor", "--json", "--server", stack.url])
    found = {}
    for line in done.stdout.splitlines():
        finding = json.loads(line)
        found.setdefault(finding["check"], finding)
    assert {
        name: found[name]["state"] for name in ("weights", "redis", "disk", "service")
    } == dict.fromkeys(("weights", "redis", "disk", "service"), "ok")
    monkeypatch.setenv("APS_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("APS_PRIORS", "mmada_8b")
    port = stack.settings.metrics_port
    ill = CliRunner().invoke(
        main, ["doctor", "--server", "http://127.0.0.1:9", "--port", str(port)]
    )
    assert ill.exit_code == 1
    for advice in ("aps weights fetch", "aps serve --embedded", f"aps serve --port {port + 1}"):
        assert advice in " ".join(ill.stdout.split()), ill.stdout
