"""The paper's tables as Markdown: printed values beside values measured here, with the reason for
each missing one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aps_core.evaluation import printed, tables
from aps_core.evaluation.cases import PROTOCOLS, Setup
from aps_core.evaluation.paper import STEP_SHARES, Experiment, inner_steps, perceptual_g2d2
from aps_core.evaluation.rows import Row
from aps_core.evaluation.run import REFERENCES, Variant
from aps_core.evaluation.tables import figure, markdown, mean, summary

PAPER_SETS = ("ffhq", "imagenet")
NAMES = {
    ("svdd", "native"): "SVDD-PM",
    ("g2d2", "native"): "G2D2",
    ("sgdd", "native"): "SGDD",
    ("aps", "upsampled"): "APS",
    ("aps", "upsampled4"): "APS-L",
}
"""The paper's name of a method under a protocol. It depends on whether pictures are enlarged before
measurement.
"""

Results = Mapping[str, Mapping[str, list[Row]]]
"""Rows by data set and experiment."""


def report(
    results: Results,
    experiments: Sequence[Experiment],
    setup: Setup,
    prior: str,
    needs: Mapping[str, str],
    extra: Mapping[str, str],
) -> str:
    """All tables.

    ``needs`` maps a data set of the paper to its requirements; ``extra`` holds finished sections by
    title.
    """
    parts = ["# The paper's tables, printed and run here\n", _legend(results, prior, needs)]
    for experiment in experiments:
        mine = {
            name: by_name[experiment.name]
            for name, by_name in results.items()
            if experiment.name in by_name
        }
        parts.append(f"## {experiment.title}\n\n{_table(experiment, mine, setup)}\n")
    for title, text in extra.items():
        parts.append(f"## {title}\n\n{text}\n")
    for name, by_name in results.items():
        shared = list(
            {
                row.key: row for chosen in ("linear", "general") for row in by_name.get(chosen, [])
            }.values()
        )
        if shared:
            parts.append(f"## Samplers on the same prior and budget: {name}\n\n{summary(shared)}")
    return "\n".join(parts)


def _legend(results: Results, prior: str, needs: Mapping[str, str]) -> str:
    lines = [
        "*printed*: the paper's figure, on its own prior and photographs. *here*: this run, prior `"
        + prior
        + "`, on the data set named."
    ]
    lines += [
        f"{name}: not reproduced here: needs {what}."
        for name, what in needs.items()
        if name not in results
    ]
    if all(
        row.lpips != row.lpips
        for by_name in results.values()
        for rows in by_name.values()
        for row in rows
    ):
        lines.append(
            "LPIPS not computed here: needs the weights vgg16 and lpips-vgg (`aps weights list`)."
            " The paper does not say which LPIPS it prints."
        )
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _table(experiment: Experiment, results: Mapping[str, list[Row]], setup: Setup) -> str:
    match experiment.name:
        case "linear":
            return two_metrics(printed.LINEAR, experiment.plan.tasks, results)
        case "general":
            return two_metrics(printed.GENERAL, experiment.plan.tasks, results)
        case "steps":
            labels = [
                Variant("aps", {"inner_steps": inner}).label(setup)
                for inner in inner_steps(setup.sampler)
            ]
            names = {
                f"{m} ({share:g} of the recommended)": label
                for m, share, label in zip(printed.STEPS, STEP_SHARES, labels, strict=True)
            }
            figures = dict(zip(names, printed.STEPS.values(), strict=True))
            return three_metrics("M", {"FFHQ printed": figures}, names, results)
        case "perceptual":
            names = {
                f"{weight:g}": Variant("aps", loss={"perceptual_weight": weight}).label(setup)
                for weight in _weights(experiment)
            }
            return three_metrics(
                "weight",
                {f"{name} printed": printed.PERCEPTUAL[name] for name in PAPER_SETS},
                names,
                results,
            )
        case "same_prior":
            names = {name: variant.label(setup) for name, variant in perceptual_g2d2().items()} | {
                "APS": "aps"
            }
            return three_metrics(
                "method", {"VQ-Diffusion, FFHQ printed": printed.SAME_PRIOR}, names, results
            )
        case "ablations":
            return "\n\n".join(
                f"{name}\n\n" + tables.ablations(rows) for name, rows in results.items()
            )
        case _:
            parts = []
            for name, method in (("G2D2", "g2d2"), ("APS", "aps")):
                names = {f"{sigma:g}": method for sigma in experiment.plan.sigmas}
                parts.append(
                    f"{name}\n\n"
                    + three_metrics(
                        "sigma", {"FFHQ printed": printed.NOISE[name]}, names, results, noisy=True
                    )
                )
            return "\n\n".join(parts)


def _weights(experiment: Experiment) -> list[float]:
    return [float(variant.loss["perceptual_weight"]) for variant in experiment.plan.variants]


def two_metrics(
    figures: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]],
    tasks: Sequence[str],
    results: Mapping[str, list[Row]],
) -> str:
    """LPIPS / PSNR by method: two columns for each task and data set of the paper, one for each
    task of other data sets.
    """
    sets = [*PAPER_SETS, *(name for name in results if name not in PAPER_SETS)]
    methods = list(dict.fromkeys(name for by_method in figures.values() for name in by_method))
    ours = {row: (protocol, method) for protocol, method, row in _our_rows(results)}
    header, columns = ["method"], []
    for name in sets:
        for task in tasks:
            if name in figures and any(task in by_task for by_task in figures[name].values()):
                header.append(f"{name} {task} printed")
                columns.append((name, task, True))
            if name in results:
                header.append(f"{name} {task} here")
                columns.append((name, task, False))
    lines = []
    for method in [*methods, *(row for row in ours if row not in methods)]:
        cells = [method]
        for name, task, is_printed in columns:
            if is_printed:
                found = figures[name].get(method, {}).get(task)
                cells.append(f"{found[0]:.3f} / {found[1]:.2f}" if found else "-")
            else:
                cells.append(
                    _two(
                        [
                            row
                            for row in results[name]
                            if (row.protocol, row.method) == ours.get(method) and row.task == task
                        ]
                    )
                )
        lines.append(cells)
    return "LPIPS / PSNR dB\n\n" + markdown(header, lines)


def _our_rows(results: Mapping[str, list[Row]]) -> list[tuple[str, str, str]]:
    found = dict.fromkeys((row.protocol, row.method) for rows in results.values() for row in rows)
    return [
        (protocol, method, NAMES.get((method, protocol), f"{method} ({protocol})"))
        for protocol, method in found
    ]


def _two(rows: Sequence[Row]) -> str:
    return (
        f"{figure(mean(row.lpips for row in rows), 3)} /"
        f" {figure(mean(row.psnr for row in rows), 2)}"
        if rows
        else "-"
    )


def three_metrics(
    first: str,
    figures: Mapping[str, Mapping[str, tuple[float, float, float]]],
    names: Mapping[str, str],
    results: Mapping[str, list[Row]],
    noisy: bool = False,
) -> str:
    """PSNR / SSIM / LPIPS by row of the paper. ``names`` are our labels of its rows; with ``noisy``
    its rows are noise levels.
    """
    lines = []
    for name, label in names.items():
        cells = [name]
        for by_row in figures.values():
            found = by_row.get(name)
            cells.append(f"{found[0]:.2f} / {found[1]:.3f} / {found[2]:.3f}" if found else "-")
        for rows in results.values():
            chosen = [
                row
                for row in rows
                if row.method == label and (not noisy or f"{row.sigma:g}" == name)
            ]
            values = (
                figure(mean(getattr(row, metric) for row in chosen), digits)
                for metric, digits in (("psnr", 2), ("ssim", 3), ("lpips", 3))
            )
            cells.append(" / ".join(values))
        lines.append(cells)
    return "PSNR dB / SSIM / LPIPS\n\n" + markdown(
        [first, *figures, *(f"{name} here" for name in results)], lines
    )


def efficiency(results: Results, prior: str, size: int, device: str) -> str:
    """Memory and time per picture: printed for an A100, and measured here."""
    lines = []
    for method, model, pixels, gib, seconds, steps in printed.EFFICIENCY:
        lines.append(
            [method, model, str(pixels), f"{gib:g}", f"{seconds:g}", str(steps), "A100, printed"]
        )
    for by_name in results.values():
        rows = [
            row
            for row in by_name.get("linear", [])
            if row.task == "sr4" and row.method not in REFERENCES
        ]
        for protocol, method in dict.fromkeys((row.protocol, row.method) for row in rows):
            mine = [row for row in rows if (row.protocol, row.method) == (protocol, method)]
            taken = (
                figure(mean(row.gpu_gib for row in mine), 1),
                f"{mean(row.seconds for row in mine):.1f}",
                f"{mine[0].decodes} decodes",
            )
            lines.append(
                [method, prior, str(size * PROTOCOLS[protocol]), *taken, f"{device}, here"]
            )
    return markdown(["method", "model", "pixels", "GPU GiB", "seconds", "steps", "where"], lines)


def style() -> str:
    """The stylization table, whose three metrics are computed by separate networks."""
    lines = [
        [name, *(f"{value:.2f}" for value in values), "-"] for name, values in printed.STYLE.items()
    ]
    return markdown(
        ["method", "ImageReward printed", "CLIP-T printed", "DINO printed", "here"], lines
    )


def questions(rows: Mapping[str, tuple[float, float]]) -> str:
    """The question-answering table. ``rows`` are (reward, judge) of methods run here."""
    lines = [
        [name, f"{reward:.4f}", f"{judge:.4f}", "Qwen3-0.6B, Qwen3-8B, printed"]
        for name, (reward, judge) in printed.QUESTIONS.items()
    ]
    lines += [
        [name, f"{reward:.4f}", figure(judge, 4), "reward and judge of the prior's own, here"]
        for name, (reward, judge) in rows.items()
    ]
    return markdown(["method", "reward", "judge", "scored by"], lines)
