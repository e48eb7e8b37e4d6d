"""Command lines of studies."""

from __future__ import annotations

import argparse


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser that shows a module's docstring as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
