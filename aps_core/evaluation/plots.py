"""Plots: quality over M and over noise, and data misfit over decoder evaluations. Needs
matplotlib.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aps_core.errors import InvalidSpec
from aps_core.evaluation.cases import Setup
from aps_core.evaluation.paper import inner_steps
from aps_core.evaluation.rows import Row
from aps_core.evaluation.run import Variant
from aps_core.evaluation.tables import mean


def pyplot() -> Any:
    """matplotlib without a display.

    Raises:
        InvalidSpec: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise InvalidSpec(
            "Plots need matplotlib: pip install '.[bench]' in the source folder."
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plots

    return plots


def over_steps(path: Path, rows: list[Row], setup: Setup) -> None:
    """PSNR and LPIPS (SSIM if LPIPS is missing) over inner steps M."""
    values = inner_steps(setup.sampler)
    chosen = [
        [row for row in rows if row.method == Variant("aps", {"inner_steps": inner}).label(setup)]
        for inner in values
    ]
    _curves(
        path,
        "inner steps M",
        {"APS": [(inner, mine) for inner, mine in zip(values, chosen, strict=True) if mine]},
    )


def over_noise(path: Path, rows: list[Row]) -> None:
    """PSNR and LPIPS (SSIM if LPIPS is missing) over the measurement noise, for APS and G2D2."""
    sigmas = sorted({row.sigma for row in rows})
    named = {"APS": "aps", "G2D2": "g2d2"}
    lines = {
        name: [
            (sigma, [row for row in rows if (row.method, row.sigma) == (method, sigma)])
            for sigma in sigmas
        ]
        for name, method in named.items()
    }
    _curves(path, "measurement noise sigma", lines)


def _curves(path: Path, horizontal: str, lines: dict[str, list[tuple[float, list[Row]]]]) -> None:
    plots = pyplot()
    figure, axes = plots.subplots(1, 2, figsize=(9, 3.4))
    measured = all(
        row.lpips == row.lpips for points in lines.values() for _, rows in points for row in rows
    )
    for axis, metric in zip(axes, ("psnr", "lpips" if measured else "ssim"), strict=True):
        for name, points in lines.items():
            axis.plot(
                [x for x, _ in points],
                [mean(getattr(row, metric) for row in rows) for _, rows in points],
                marker="o",
                label=name,
            )
        axis.set(
            xlabel=horizontal, ylabel={"psnr": "PSNR dB", "ssim": "SSIM", "lpips": "LPIPS"}[metric]
        )
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plots.close(figure)


def misfit_curves(
    path: Path,
    trajectories: Path,
    tasks: Sequence[str],
    methods: Sequence[str],
    protocol: str = "native",
) -> None:
    """Data misfit relative to the noise floor after every reverse step, mean over photographs.
    Below 1, only noise is left to fit.
    """
    plots = pyplot()
    runs: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with trajectories.open(newline="") as file:
        for line in csv.DictReader(file):
            if (
                line["protocol"] == protocol
                and line["sigma"] == "0.05"
                and line["method"] in methods
            ):
                runs[line["task"], line["method"]][int(line["decodes"])].append(
                    float(line["misfit"]) / max(float(line["noise_floor"]), 1e-9)
                )
    figure, axes = plots.subplots(
        1, len(tasks), figsize=(4.2 * len(tasks) + 1.8, 3.4), squeeze=False, layout="constrained"
    )
    for axis, task in zip(axes[0], tasks, strict=True):
        for method in methods:
            points = sorted(
                (decodes, mean(values)) for decodes, values in runs.get((task, method), {}).items()
            )
            if points:
                axis.plot(*zip(*points, strict=True), marker=".", label=method)
        axis.axhline(1, color="grey", linestyle="--", linewidth=1)
        axis.set(title=task, xlabel="decodes", ylabel="misfit / noise floor", yscale="log")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside right center", fontsize="small"
    )
    figure.savefig(path, dpi=120)
    plots.close(figure)
