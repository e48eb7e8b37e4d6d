"""File of a text evaluation: answers as CSV, written one by one, with the settings beside them.

An interrupted evaluation continues from its file. Answers of other settings are not mixed with it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from aps_core.errors import InvalidSpec
from aps_core.evaluation.text import Row

OPTIONAL = ("judge", "likelihood")
"""Columns that are empty without the model that fills them."""


class AnswerFile:
    """Answers that are stored in ``path``; the settings are in the JSON file of the same name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.beside = path.with_suffix(".json")
        self.rows: list[Row] = []
        self.settings: dict[str, Any] = {}
        """Settings of the stored answers; empty if there is no file."""
        if path.exists():
            if not self.beside.exists():
                raise InvalidSpec(
                    f"{path} exists without its settings ({self.beside.name}), so this evaluation"
                    " cannot continue it. Choose another file."
                )
            self.settings = json.loads(self.beside.read_text())
            with path.open(newline="") as file:
                self.rows = [_row(line) for line in csv.DictReader(file)]

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Creates the files, or checks that the stored answers have these settings.

        Raises:
            InvalidSpec: they have others.
        """
        if not self.settings:
            self.settings = dict(settings)
            self.beside.write_text(json.dumps(self.settings, indent=1) + "\n")
            write([], self.path)
            return
        names = sorted({*settings, *self.settings})
        other = [name for name in names if settings.get(name) != self.settings.get(name)]
        if other:
            raise InvalidSpec(
                f"{self.path} holds answers with other settings: "
                + ", ".join(f"{name} {self.settings.get(name)!r}" for name in other)
                + ". Use the same settings to continue it, or choose another file."
            )

    def append(self, row: Row) -> None:
        """Stores an answer at once."""
        self.rows.append(row)
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(asdict(row).values())


def write(rows: Sequence[Row], path: Path) -> None:
    """Every answer as a CSV line, after a line with the names of the columns."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in fields(Row)])
        writer.writerows(asdict(row).values() for row in rows)


def _row(line: dict[str, Any]) -> Row:
    absent = {name: None for name in OPTIONAL if not line[name]}
    return TypeAdapter(Row).validate_python({**line, **absent})
