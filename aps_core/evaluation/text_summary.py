"""Tables of a text evaluation: means, diversity, and gains paired over prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from aps_core.evaluation.tables import paired_interval
from aps_core.evaluation.text import BEST_OF, UNGUIDED, Row

PRINTED = (
    "Printed by the APS paper (reward by Qwen3-0.6B, judge Qwen3-8B; its models were not available"
    " here): LLaDA -0.097 and 2.170; Dream 0.997 and 3.752; Dream with APS 1.379 and 4.578."
)

SCORES = ("reward", "judge", "likelihood")


def summary(rows: Sequence[Row]) -> str:
    """Means by method, and gains over the unguided answer and over best-of-K with 95 % bootstrap
    intervals over prompts, as Markdown.
    """
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = [
        "| method | K | reward | mean of K | judge | likelihood | distinct-2 | distinct tokens"
        " | tokens | seconds | CPU seconds |",
        f"|---{'|---' * 10}|",
        *(_means(method, [row for row in rows if row.method == method]) for method in methods),
    ]
    for reference in (UNGUIDED, BEST_OF):
        others = [method for method in methods if method not in (UNGUIDED, reference)]
        if reference in methods and others:
            lines += ["", f"Gain over `{reference}`, with 95 % intervals over prompts:", ""]
            lines += _gains(rows, reference, others)
    return "\n".join([*lines, "", PRINTED])


def distinct_bigrams(texts: Sequence[str]) -> float:
    """Share of distinct word pairs among all of these texts; NaN without any. Low if the answers
    repeat one another.
    """
    pairs = [pair for text in texts for pair in pairwise(text.lower().split())]
    return len(set(pairs)) / len(pairs) if pairs else math.nan


def _means(method: str, rows: Sequence[Row]) -> str:
    def mean(name: str, digits: int) -> str:
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        return f"{fmean(values):.{digits}f}" if values else "-"

    cells = [
        method,
        str(rows[0].samples),
        mean("reward", 3),
        mean("mean_reward", 3),
        mean("judge", 3),
        mean("likelihood", 3),
        f"{distinct_bigrams([row.text for row in rows]):.3f}",
        mean("distinct", 2),
        mean("tokens", 1),
        mean("seconds", 2),
        mean("cpu_seconds", 2),
    ]
    return f"| {' | '.join(cells)} |"


def _gains(rows: Sequence[Row], reference: str, methods: Sequence[str]) -> list[str]:
    known = [name for name in SCORES if getattr(rows[0], name) is not None]
    lines = [f"| method | {' | '.join(known)} |", f"|---{'|---' * len(known)}|"]
    for method in methods:
        cells = []
        for name in known:
            mine, theirs = (_by_prompt(rows, each, name) for each in (method, reference))
            gains = [mine[prompt] - theirs[prompt] for prompt in mine]
            middle, low, high = paired_interval(gains)
            cells.append(f"{middle:+.3f} [{low:+.3f}, {high:+.3f}]")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def _by_prompt(rows: Sequence[Row], method: str, name: str) -> dict[str, float]:
    """Mean score over the seeds of each prompt."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if row.method == method:
            values.setdefault(row.prompt, []).append(getattr(row, name))
    return {prompt: fmean(some) for prompt, some in values.items()}
