"""Help texts: every command and every option has a description."""

import click
import pytest
from click.testing import CliRunner

from aps_cli.main import main
from aps_core.priors.embedded.image import EmbeddedPrior
from aps_core.tasks import TaskSpec


def commands(group: click.Group, path: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        found[f"{path}{name}"] = command
        if isinstance(command, click.Group):
            found |= commands(command, f"{path}{name} ")
    return found


@pytest.mark.parametrize("path", commands(main))
def test_every_command_explains_itself(path):
    command = commands(main)[path]
    done = CliRunner().invoke(main, [*path.split(), "--help"])
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: aps {path}")
    assert len((command.help or "").split()) > 3
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            obvious = param.name in (
                "host",
                "port",
                "sigma",
                "seed",
                "prior",
                "prompt",
                "as_json",
                "samples",
            )
            assert obvious or (param.help and param.help != "None"), f"{path} {param.opts}"
    wrong = CliRunner().invoke(main, [*path.split(), "--nonesuch"])
    assert (wrong.exit_code, len(wrong.stderr.strip().splitlines())) == (2, 1)
    assert wrong.stderr.startswith("aps: No such option")


def test_the_list_of_commands_has_every_task_and_the_exit_codes():
    done = CliRunner().invoke(main, ["--help"])
    for name in TaskSpec.family:
        assert f"\n  {name} " in done.stdout
    assert "Exit codes" in done.stdout
    assert CliRunner().invoke(main, []).exit_code == 2
    unknown = CliRunner().invoke(main, ["restor"])
    assert (unknown.exit_code, len(unknown.stderr.splitlines())) == (2, 1)


def test_help_says_that_the_prior_sets_sampler_defaults():
    """The embedded prior runs its recommended ten steps, not the default shown for the option."""
    assert "what the prior recommends" in CliRunner().invoke(main, ["restore", "--help"]).stdout
    shown = CliRunner().invoke(main, ["capabilities"]).stdout
    settings = EmbeddedPrior.recommended
    assert f"recommended: steps={settings['steps']}, " in shown
    assert f" inner_steps={settings['inner_steps']}, " in shown


def test_help_shows_no_default_where_the_picture_decides():
    shown = CliRunner().invoke(main, ["restore", "--help"]).output
    assert "default: embedded]" not in shown
    assert "default: embedded]" in CliRunner().invoke(main, ["edit", "--help"]).output
