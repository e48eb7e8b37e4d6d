"""Restores the really degraded pictures in ``examples/degraded`` without naming the degradation.

    python -m research.degraded.restore [FOLDER]

It runs ``aps restore`` with ``OPTIONS`` on all of them, and writes
``docs/degraded.jpg`` (every picture before and after) and ``research/degraded/degraded.json``
(what was found, the verdict, seconds), which ``docs/degraded.md`` shows. An interrupted run
continues if it is started again with the same FOLDER for the results. The remarks in
``docs/degraded.md`` are written by hand: look at the pictures and revise them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aps_cli import contact_sheet
from aps_cli.several import VERDICTS
from aps_core.imaging.images import open_image
from research.common.arguments import parser_of

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "examples" / "degraded"
SHEET = ROOT / "docs" / "degraded.jpg"
REPORT = Path(__file__).with_name("degraded.json")
SIDE = 384
"""Longest side of a picture on the sheet, in pixels."""
OPTIONS = ("--operator", "auto")
"""Of ``aps restore``."""


def restore(results: Path) -> None:
    """Runs the command line on all pictures; one that fails stops none of the others."""
    command = [sys.executable, "-m", "aps_cli.main", "restore", str(PICTURES), *OPTIONS]
    # its exit code tells that there is a picture without a result, which is an outcome like others
    subprocess.run([*command, "--output", str(results), "--continue"], cwd=ROOT, check=False)


def outcomes(results: Path) -> Iterator[tuple[dict[str, Any], contact_sheet.Cell]]:
    """What became of every picture, and how the sheet shows it."""
    newest = max(results.glob("contact-sheet*.json"), key=lambda path: path.stat().st_mtime)
    for each in json.loads(newest.read_text())["pictures"]:
        source = Path(each["picture"])
        before = contact_sheet.thumbnail(source.read_bytes(), SIDE)
        outcome = {"picture": source.name, "size": _size(source), "words": each["words"]}
        after = None
        if each["state"] == "done":
            [sidecar] = results.glob(f"{source.stem}*.json")
            found = json.loads(sidecar.read_text())
            outcome |= {
                "found": found["found"]["text"],
                "operator": found["found"]["operator"],
                "verdict": VERDICTS[found["fit"]["verdict"]],
                "explained": found["fit"]["explained"],
                "prior": found["spec"]["prior"],
                "seconds": round(found["seconds"]["total"], 1),
            }
            picture = sidecar.with_suffix(".png").read_bytes()
            after = contact_sheet.thumbnail(picture, SIDE)
        yield outcome, contact_sheet.Cell(source.name, tuple(each["words"]), before, after)


def report() -> str:
    """The last report as Markdown, for ``docs/degraded.md``."""
    rows = [
        f"| `{each['picture']}` | {each['size'][0]}x{each['size'][1]} |"
        f" {each.get('found', each['words'][-1])} | {each.get('verdict', each['words'][0])} |"
        f" {each.get('seconds', '-')} |"
        for each in json.loads(REPORT.read_text())
    ]
    head = ["| picture | pixels | found | verdict | seconds |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows])


def _size(source: Path) -> tuple[int, int]:
    picture = open_image(source.read_bytes())
    return picture.width, picture.height


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the results go")
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp(prefix="degraded-"))
    restore(folder)
    told, cells = zip(*outcomes(folder), strict=True)
    [sheet] = contact_sheet.sheets(cells, SIDE)
    sheet.save(SHEET, quality=85, optimize=True)
    REPORT.write_text(json.dumps(told, indent=1) + "\n")
    print(report())


if __name__ == "__main__":
    main()
