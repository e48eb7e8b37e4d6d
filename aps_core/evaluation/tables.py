"""Markdown tables of means over the per-image table, and paired intervals of differences between
methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from aps_core.evaluation.rows import Row

RESAMPLES = 10_000


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean; NaN for empty input."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan


def figure(value: float, digits: int) -> str:
    """A formatted number, or a dash for NaN."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(
        "| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *lines)
    )


def paired_interval(differences: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Mean of paired differences with its 95 % bootstrap interval (low, high). The bounds are NaN
    for fewer than two pairs.
    """
    if len(differences) < 2:
        return mean(differences), math.nan, math.nan
    values = np.asarray(differences)
    drawn = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(1), [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def summary(rows: list[Row]) -> str:
    """Tables of means by task and method, per protocol: quality; detail, misfit and cost;
    differences to APS, or to the last method if APS is not among them.
    """
    parts = []
    for protocol in dict.fromkeys(row.protocol for row in rows):
        mine = [row for row in rows if row.protocol == protocol]
        photos = len({row.image for row in mine})
        for title, cell in CELLS.items():
            parts.append(
                f"Protocol `{protocol}`, {photos} photographs: {title}\n\n{by_task(mine, cell)}\n"
            )
        reference = "aps" if any(row.method == "aps" for row in mine) else mine[-1].method
        parts += [
            f"Protocol `{protocol}`: {title} of `{reference}` minus that of the other, with the"
            f" paired 95 % interval\n\n{against(mine, reference, measure, digits)}\n"
            for title, measure, digits in (("PSNR (dB)", "psnr", 2), ("SSIM", "ssim", 3))
        ]
    return "\n".join(parts)


def _quality(rows: list[Row]) -> str:
    values = (
        figure(mean(getattr(row, name) for row in rows), digits)
        for name, digits in (("lpips", 3), ("psnr", 2), ("ssim", 3))
    )
    return " / ".join(values)


def _effort(rows: list[Row]) -> str:
    return (
        f"{mean(row.gradient_energy for row in rows):.2f} /"
        f" {mean(row.residual for row in rows):.2f} / {mean(row.seconds for row in rows):.1f}"
    )


CELLS: dict[str, Callable[[list[Row]], str]] = {
    "LPIPS / PSNR dB / SSIM": _quality,
    "gradient energy (truth = 1) / misfit over noise floor / seconds": _effort,
}


def by_task(rows: list[Row], cell: Callable[[list[Row]], str]) -> str:
    """One row per task and noise level, one column per method. Shows the number of photographs if
    some are missing.
    """
    methods, photos = (
        list(dict.fromkeys(row.method for row in rows)),
        len({row.image for row in rows}),
    )
    sigmas = {row.sigma for row in rows}
    lines = []
    for task, sigma in dict.fromkeys((row.task, row.sigma) for row in rows):
        cells = [f"{task}, sigma {sigma:g}" if len(sigmas) > 1 else task]
        for method in methods:
            chosen = [
                row for row in rows if (row.task, row.sigma, row.method) == (task, sigma, method)
            ]
            cells.append(
                cell(chosen) + ("" if len(chosen) == photos else f" (n={len(chosen)})")
                if chosen
                else ""
            )
        lines.append(cells)
    return markdown(["task", *methods], lines)


def ablations(rows: list[Row], reference: str = "aps") -> str:
    """One row per variant: PSNR and SSIM by task, and the paired difference of its PSNR to the
    reference over all tasks with the 95 % interval.
    """
    tasks = list(dict.fromkeys(row.task for row in rows))
    value = {(row.task, row.image, row.method): row.psnr for row in rows}
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method]
        cells = [
            f"{mean(r.psnr for r in mine if r.task == task):.2f} /"
            f" {mean(r.ssim for r in mine if r.task == task):.3f}"
            for task in tasks
        ]
        pairs = [
            (row.psnr, value[row.task, row.image, reference])
            for row in mine
            if (row.task, row.image, reference) in value
        ]
        middle, low, high = paired_interval([psnr - theirs for psnr, theirs in pairs])
        difference = (
            ""
            if method == reference or not pairs
            else f"{middle:+.2f} [{figure(low, 2)}, {figure(high, 2)}]"
        )
        lines.append([method, *cells, difference, f"{mean(row.seconds for row in mine):.1f}"])
    header = [
        "variant",
        *(f"{task}: PSNR dB / SSIM" for task in tasks),
        f"PSNR minus that of `{reference}`",
        "seconds",
    ]
    return markdown(header, lines)


def against(rows: list[Row], reference: str, measure: str = "psnr", digits: int = 2) -> str:
    """A ``measure`` of ``reference`` minus that of every other method, paired by photograph."""
    methods = [
        method for method in dict.fromkeys(row.method for row in rows) if method != reference
    ]
    value = {(row.task, row.sigma, row.image, row.method): getattr(row, measure) for row in rows}
    lines = []
    for task, sigma in dict.fromkeys((row.task, row.sigma) for row in rows):
        cells = [task]
        for method in methods:
            keys = [
                key[:3]
                for key in value
                if key[0] == task
                and key[1] == sigma
                and key[3] == method
                and (*key[:3], reference) in value
            ]
            middle, low, high = paired_interval(
                [value[(*key, reference)] - value[(*key, method)] for key in keys]
            )
            cells.append(
                ""
                if not keys
                else f"{middle:+.{digits}f} [{figure(low, digits)}, {figure(high, digits)}]"
            )
        lines.append(cells)
    return markdown(["task", *methods], lines)
