"""Tables of the page that compares with alternatives (``docs/alternatives.md``).

    python -m research.peers.alternatives

Their numbers have been measured by other commands, on the same pictures with the same measurements
and seeds. Prints the tables.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

from aps_core.evaluation.rows import Row, read_rows
from aps_core.evaluation.tables import markdown, mean
from research.common.arguments import parser_of
from research.common.tables import gained
from research.common.variants import TASKS

RESULTS = Path(__file__).parents[1] / "prior_worth"
DEFAULT = RESULTS / "2026-11-28_photographs.csv"
"""The defaults and the baselines, by ``research.prior_worth.photographs``."""
DOCUMENTS = RESULTS / "2026-11-27_documents.csv"
"""By ``research.prior_worth.documents``."""
OURS = "photographs"
FILLING, FILLER = "inpainting70", "embedded"
"""A task for which another prior is the default."""
WIENER = ("gaussian_blur", "motion_blur")
"""Tasks of the Wiener filter, which is the same as ``input`` elsewhere."""
Table = dict[tuple[str, str], dict[str, Row]]
"""Rows by task and method, then by picture."""


def by_method(path: Path) -> Table:
    """The rows of a CSV file."""
    found: Table = defaultdict(dict)
    for row in read_rows(path, Row):
        found[row.task, row.method][row.image] = row
    return found


def quality(rows: dict[str, Row]) -> str:
    """Means of PSNR and SSIM."""
    return (
        f"{mean(row.psnr for row in rows.values()):.2f} /"
        f" {mean(row.ssim for row in rows.values()):.3f}"
    )


def gain(rows: dict[str, Row], others: dict[str, Row]) -> str:
    """Difference in PSNR with its 95 % interval, paired over the pictures."""
    names = sorted(rows.keys() & others.keys())
    return gained([rows[x].psnr - others[x].psnr for x in names])


def photograph_table() -> str:
    """PSNR dB / SSIM by task and method on the photographs, and the gain over the best other."""
    found = by_method(DEFAULT)
    columns = ("simple", "wiener", "biharmonic", "tv", "shrinkage")
    lines = []
    for task in TASKS:
        others = {"simple": found[task, "input"]}
        others |= {name: found[task, name] for name in ("tv", "shrinkage")}
        if task in WIENER:
            others["wiener"] = found[task, "wiener"]
        if task == FILLING:
            others["biharmonic"] = found[task, "biharmonic"]
        ours = found[task, FILLER if task == FILLING else OURS]
        best = max(others, key=lambda name: mean(row.psnr for row in others[name].values()))
        cells = [quality(others[name]) if name in others else "" for name in columns]
        lines.append([task, *cells, quality(ours), f"{gain(ours, others[best])} over {best}"])
    return markdown(["task", *columns, "APS", "APS minus the best other, dB"], lines)


def document_table() -> str:
    """PSNR dB / SSIM by task and method on pages and screens."""
    found = by_method(DOCUMENTS)
    tasks = list(dict.fromkeys(task for task, _ in found))
    lines = []
    for task in tasks:
        ours, best = found[task, "documents"], found[task, "shrinkage"]
        others = (found[task, name] for name in ("input", "tv", "shrinkage"))
        lines.append([task, *map(quality, others), quality(ours), gain(ours, best)])
    return markdown(["task", "simple", "tv", "shrinkage", "APS", "APS minus shrinkage, dB"], lines)


def seconds(found: Table, method: str, tasks: tuple[str, ...] = TASKS) -> float:
    """Median seconds of a picture."""
    return statistics.median(row.seconds for task in tasks for row in found[task, method].values())


def time_table() -> str:
    """Median times relative to total variation on the same tasks; of the default of photographs
    except for missing pixels.
    """
    found = by_method(DEFAULT)
    tasks = tuple(task for task in TASKS if task != FILLING)
    ours = seconds(found, OURS, tasks) / seconds(found, "tv", tasks)
    times = {
        "simple": seconds(found, "input") / seconds(found, "tv"),
        "wiener": seconds(found, "wiener", WIENER) / seconds(found, "tv", WIENER),
        "tv": 1.0,
        "shrinkage": seconds(found, "shrinkage") / seconds(found, "tv"),
        "biharmonic": seconds(found, "biharmonic", (FILLING,)) / seconds(found, "tv", (FILLING,)),
        "APS": ours,
    }
    return markdown(["method", "time, tv = 1"], [[k, f"{v:.2g}"] for k, v in times.items()])


def main() -> None:
    parser_of(__doc__).parse_args()
    print("\n\n".join((photograph_table(), time_table(), document_table())))


if __name__ == "__main__":
    main()
