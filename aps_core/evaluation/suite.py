"""Runs the paper's experiments and writes everything: tables, JSON, per-image CSV, plots, contact
sheets.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

import torch

import aps_core
from aps_core.checkpoints import checkpoint_cache
from aps_core.checkpoints.manifest import CHECKPOINTS
from aps_core.engines.engine import ImageEngine, TextEngine
from aps_core.evaluation import plots, report, sheets, text_file, text_summary
from aps_core.evaluation import text as text_evaluation
from aps_core.evaluation.cases import Setup, make_case
from aps_core.evaluation.lpips import LPIPS, load_lpips
from aps_core.evaluation.paper import Experiment
from aps_core.evaluation.photographs import Photographs
from aps_core.evaluation.questions import paper_questions
from aps_core.evaluation.rows import Row
from aps_core.evaluation.run import evaluate
from aps_core.text.config import TextConfig

PAPER_PRIOR = ("mmada-8b-base", "magvitv2")


@dataclass(frozen=True)
class Questions:
    """The question-answering experiment: a text prior, and how many seeds and prompts."""

    engine: TextEngine
    seeds: int = 1
    prompts: int | None = None


def lpips_if_here(device: torch.device) -> LPIPS | None:
    """The LPIPS metric, or None if its weights are not installed."""
    if any(checkpoint_cache.check(name).state != "present" for name in ("vgg16", "lpips-vgg")):
        return None
    return load_lpips(
        checkpoint_cache.path("vgg16") / "model.safetensors",
        checkpoint_cache.path("lpips-vgg") / "model.safetensors",
        device,
    )


def run_suite(
    engine: ImageEngine,
    setup: Setup,
    sets: Mapping[str, Photographs],
    experiments: list[Experiment],
    out: Path,
    questions: Questions | None = None,
    progress: Callable[[str, str, Row], None] = lambda dataset, experiment, row: None,
) -> str:
    """Runs experiments on every data set and returns the report, also written to ``report.md``.
    Results of an earlier run in ``out`` are kept.
    """
    lpips = lpips_if_here(engine.device)
    results: dict[str, dict[str, list[Row]]] = {}
    for dataset, photos in sets.items():
        results[dataset] = {}
        for experiment in experiments:

            def report_row(row: Row, dataset: str = dataset, name: str = experiment.name) -> None:
                progress(dataset, name, row)

            results[dataset][experiment.name] = evaluate(
                engine,
                setup,
                photos,
                out / dataset,
                experiment.plan,
                lpips=lpips,
                report=report_row,
            )
        _pictures(engine, setup, photos, results[dataset], out / dataset)
    prior = engine.spec.type
    extra = {
        "Sampling efficiency": report.efficiency(
            results, prior, next(iter(sets.values()))[0][1].shape[-1], _device(engine)
        ),
        "Stylization": _style(),
        "Question answering": _questions(questions, out),
    }
    text = report.report(results, experiments, setup, prior, needs(), extra)
    (out / "report.md").write_text(text)
    (out / "results.json").write_text(
        json.dumps(_record(engine, setup, experiments, results), indent=1)
    )
    return text


def _pictures(
    engine: ImageEngine,
    setup: Setup,
    photos: Photographs,
    results: Mapping[str, list[Row]],
    out: Path,
) -> None:
    """Plots and contact sheets of one data set; an existing strip is not drawn again."""
    for name in ("linear", "general"):
        if rows := results.get(name):
            tasks, methods = (
                list(dict.fromkeys(row.task for row in rows)),
                list(dict.fromkeys(row.method for row in rows)),
            )
            sheets.contact_sheet(out / f"{name}.png", out / "pictures", rows)
            plots.misfit_curves(
                out / f"{name}-misfit.png", out / "trajectories.csv", tasks, methods
            )
    if "steps" in results:
        plots.over_steps(out / "steps.png", results["steps"], setup)
    if "noise" in results:
        plots.over_noise(out / "noise.png", results["noise"])
    strip = out / "anchors.png"
    if "linear" in results and not strip.exists():
        name, truth = photos[0]
        sheets.anchor_strip(
            strip,
            engine,
            setup,
            make_case(engine, setup, "native", "sr4", name, truth, 0.05, 0),
            0,
        )


def needs() -> dict[str, str]:
    """Requirements to reproduce the paper on each of its data sets, besides an accelerator."""
    missing = [name for name in PAPER_PRIOR if checkpoint_cache.check(name).state != "present"]
    weights = (
        f"the weights {', '.join(missing)} (prior mmada_8b), and "
        if missing
        else "the prior mmada_8b, and "
    )
    return {
        "ffhq": weights + "the FFHQ validation set (--ffhq FOLDER)",
        "imagenet": (
            weights
            + "the ImageNet validation set and the paper's list (--imagenet FOLDER --imagenet-list"
            " imagenet_val_1k.txt)"
        ),
    }


def _style() -> str:
    missing = [
        name
        for name in ("csd-vit-l", *PAPER_PRIOR)
        if checkpoint_cache.check(name).state != "present"
    ]
    why = [f"the weights {', '.join(missing)}"] if missing else []
    why += ["the metrics ImageReward, CLIP-T and DINO", "the StyleAligned pictures and prompts"]
    return report.style() + f"\n\nNot reproduced here: needs {', '.join(why)}."


def _questions(questions: Questions | None, out: Path) -> str:
    wanted = [
        name
        for name in ("dream-7b-instruct", "skywork-reward-v2-qwen3-0.6b", "qwen3-8b")
        if checkpoint_cache.check(name).state != "present"
    ]
    note = (
        f"\n\nThe paper's models are not reproduced here: needs the weights {', '.join(wanted)}."
        if wanted
        else ""
    )
    if questions is None:
        return report.questions({}) + note
    engine = questions.engine
    comparison = text_evaluation.Comparison(engine, TextConfig(), questions.seeds)
    compared = (text_evaluation.UNGUIDED, "aps")
    methods = [each for each in comparison.methods(1, 1) if each.name in compared]
    rows = comparison.evaluate(paper_questions()[: questions.prompts], methods)
    text_file.write(rows, out / "questions.csv")
    scores = {
        f"{engine.spec.type}, {m}": (mean(row.reward for row in rows if row.method == m), math.nan)
        for m in compared
    }
    return report.questions(scores) + note + "\n\n" + text_summary.summary(rows)


def _device(engine: ImageEngine) -> str:
    if engine.device.type == "cuda":
        return torch.cuda.get_device_name(engine.device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def _record(
    engine: ImageEngine,
    setup: Setup,
    experiments: list[Experiment],
    results: Mapping[str, Mapping[str, list[Row]]],
) -> dict[str, object]:
    """All results and everything needed to reproduce them."""
    return {
        "prior": engine.spec.type,
        "weights": engine.spec.identity(),
        "settings": setup.sampler.model_dump(),
        "loss": setup.loss.model_dump(),
        "tuned": engine.spec.tuned,
        "environment": {
            "device": _device(engine),
            "torch": torch.__version__,
            "aps": aps_core.__version__,
            "python": platform.python_version(),
        },
        "weights_missing": [
            name for name in CHECKPOINTS if checkpoint_cache.check(name).state != "present"
        ],
        "experiments": {
            experiment.name: {"title": experiment.title, **asdict(experiment.plan)}
            for experiment in experiments
        },
        "rows": {
            dataset: {name: [_plain(row) for row in rows] for name, rows in by_name.items()}
            for dataset, by_name in results.items()
        },
    }


def _plain(row: Row) -> dict[str, object]:
    """Replaces values that JSON cannot represent."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(row).items()
    }
