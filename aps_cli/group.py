"""The command group ``aps``: error messages, exit codes, sections of the help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import click
from pydantic import ValidationError

from aps_client.errors import Forbidden, InvalidRequest, NotFound
from aps_core.errors import APSError, ImageRejected, InvalidSpec, WeightsMissing
from aps_core.registry import explain

USER = (InvalidSpec, ImageRejected, WeightsMissing, InvalidRequest, Forbidden, NotFound)
"""Errors the caller can fix; they exit with code 2."""

EXTRAS = {
    "torch": "library",
    "transformers": "library",
    "safetensors": "library",
    "redis": "service",
    "celery": "service",
    "fastapi": "service",
    "uvicorn": "service",
    "fsspec": "service",
    "prometheus_client": "service",
}
"""Extra of the distribution that installs a package."""

EXIT_CODES = """\b
Exit codes:
  0    done
  1    the command failed, or the service is unavailable
  2    invalid usage or input, missing or rejected API key, or missing weights
  78   a worker cannot start with these settings
  130  interrupted"""


class OneLineErrors(click.Group):
    """Prints expected errors as one line, lists commands by purpose and documents exit codes."""

    sections: ClassVar[dict[str, tuple[str, ...]]] = {
        "Run the service": ("serve", "worker", "webhooks", "keys", "requeue", "jobs"),
        "Inspect and check": ("doctor", "capabilities", "weights", "verify", "replay"),
        "Measure": ("eval", "eval-text", "demo"),
    }

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **options: Any
    ) -> NoReturn:
        """Runs the command line and exits; expected errors print one line, not a traceback."""
        options["standalone_mode"] = False
        try:
            code = super().main(args, "aps", **options)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(2)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "aps"
            _fail(f"{error.format_message().rstrip('.')}. See '{path} --help'.", 2)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except click.Abort:
            _fail("interrupted", 130)
        except ValidationError as error:
            _fail(_told(error), 2)
        except APSError as error:
            _fail(str(error), 2 if isinstance(error, USER) else 1)
        except ModuleNotFoundError as error:
            if (extra := EXTRAS.get((error.name or "").partition(".")[0])) is None:
                raise
            _fail(
                f"The package {error.name} is not installed: pip install '.[{extra}]' in the"
                " source folder.",
                1,
            )
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands in ``sections``; commands in none of them go under "Compute"."""
        placed = {name for names in self.sections.values() for name in names}
        computing = tuple(name for name in self.list_commands(ctx) if name not in placed)
        for title, names in {"Compute": computing, **self.sections}.items():
            known = [(name, self.commands[name]) for name in names if name in self.commands]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, command.get_short_help_str(150)) for name, command in known]
                )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the exit codes."""
        formatter.write_paragraph()
        formatter.write_text(EXIT_CODES)


def _told(error: ValidationError) -> str:
    """The message of an invalid field; a setting is called as its environment variable."""
    field, *message = explain(error).partition(":")
    return "".join([f"APS_{field.upper()}" if error.title == "Settings" else field, *message])


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"aps: {' '.join(message.split())}", err=True)
    sys.exit(code)
