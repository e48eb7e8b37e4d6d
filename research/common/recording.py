"""Rows of a study in a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

Row = TypeVar("Row")
"""A dataclass or a dictionary; all rows of a file have the same fields."""


def recorded(rows: Iterable[Row], out: Path) -> list[Row]:
    """Computes all rows. Each is in the file ``out``, which is written anew, once computed."""
    made: list[Row] = []
    with out.open("w", newline="") as file:
        for row in rows:
            cells = cast(dict[str, Any], asdict(cast(Any, row)) if is_dataclass(row) else row)
            writer = csv.DictWriter(file, list(cells), lineterminator="\n")
            if not made:
                writer.writeheader()
            writer.writerow(cells)
            file.flush()
            made.append(row)
    return made
