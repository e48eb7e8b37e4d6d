"""``aps serve`` and ``aps keys``: mistakes are one line before anything starts."""

from contextlib import nullcontext

import pytest
from click.testing import CliRunner
from redis import Redis

from aps_cli.main import main
from service.access.keys import KeyStore
from service.launch.embedded_server import running_server
from service.settings import Settings


def aps(*arguments, **env):
    return CliRunner().invoke(main, [str(a) for a in arguments], env=env)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--embedded", "--port", "70000"], "'--port': 70000 is not in the range"),
        (["serve", "--port", "0"], "'--port': 0 is not in the range"),
        (["serve", "--embedded", "--device", "tpu"], "'tpu' is not one of 'cpu', 'cuda'"),
        (["worker", "--device", "tpu"], "'tpu' is not one of 'cpu', 'cuda'"),
        (["guide", "What is oak?", "--device", "tpu"], "'tpu' is not one of 'cpu', 'cuda'"),
    ],
)
def test_wrong_options_are_one_line(arguments, words):
    done = aps(*arguments)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.output
    assert words in done.stderr


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_wrong_setting_is_named_as_it_was_set(command):
    done = aps(command, APS_DEVICE="tpu")
    assert (done.exit_code, done.stderr) == (
        2,
        "aps: APS_DEVICE: Input should be 'cpu' or 'cuda' (given: 'tpu')\n",
    )


def test_missing_keys_are_one_line(tmp_path):
    done = aps("serve", "--embedded", APS_AUTH="keys", APS_DATA_DIR=str(tmp_path))
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1), done.output
    assert "requires API keys, but none exists" in done.stderr


@pytest.mark.parametrize("running", [True, False])
def test_keys_are_those_of_the_embedded_server(tmp_path, running):
    env = {"APS_DATA_DIR": str(tmp_path)}
    settings = Settings(data_dir=tmp_path)
    with running_server(settings) if running else nullcontext():
        made = aps("keys", "create", "alice", **env)
        assert made.exit_code == 0, made.output
        assert f"using unix://{tmp_path}" in made.stderr
        assert "alice" in aps("keys", "list", **env).stdout
        assert aps("keys", "revoke", made.stdout.split("_")[1], **env).exit_code == 0
    with running_server(settings) as url, Redis.from_url(url) as redis:
        assert KeyStore(redis).all() == []
