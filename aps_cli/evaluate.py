"""``aps eval``: compares samplers on degraded photographs or runs the paper's experiments."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aps_cli.device import DEVICE, default_device
from aps_cli.fields import member_fields, parse_value
from aps_core.errors import InvalidSpec
from aps_core.samplers import SamplerSpec

if TYPE_CHECKING:
    from aps_core.engines.engine import ImageEngine
    from aps_core.evaluation import Row, Setup
    from aps_core.evaluation.photographs import Photographs
    from aps_core.evaluation.suite import Questions

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
LOSS = "loss"
"""What ``--set`` calls the loss beside the methods."""
DEFAULT_TASKS = ("sr4", "gaussian_blur", "inpainting70", "hdr", "motion_blur")


@click.command("eval")
@click.argument("folder", type=FOLDER)
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("eval-output"),
    show_default=True,
    help="Folder for tables and pictures; a previous run in it is resumed.",
)
@click.option(
    "--suite",
    type=click.Choice(["paper"]),
    help="Run all of the paper's experiments instead of one comparison.",
)
@click.option(
    "--experiment",
    "experiments",
    multiple=True,
    help="Run only this experiment of the suite (repeatable).",
)
@click.option(
    "--ffhq",
    type=FOLDER,
    help="Folder of FFHQ validation pictures; the suite adds the 100 pictures of the paper.",
)
@click.option(
    "--imagenet",
    type=FOLDER,
    help="Folder of ImageNet validation pictures, as --ffhq; needs --imagenet-list.",
)
@click.option(
    "--imagenet-list",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The paper's list of pictures; each line is FILE CLASS.",
)
@click.option(
    "--questions",
    default=0,
    show_default=True,
    help=(
        "Seeds per prompt for the suite's question answering with the embedded text prior; 0 skips"
        " it."
    ),
)
@click.option("--task", "tasks", multiple=True, help="Run only this task (repeatable).")
@click.option(
    "--operator",
    "operators",
    multiple=True,
    metavar="JSON",
    help=(
        "Run this operator of your own as a task (repeatable): its name, or JSON such as"
        ' \'{"type": "defocus_blur", "radius": 4}\'. Without --task, nothing else runs.'
    ),
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    help="Beside the baselines, run only this method (repeatable).",
)
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    help=(
        "native, upsampled or upsampled4 (repeatable); default: native, with --suite also"
        " upsampled."
    ),
)
@click.option(
    "--samples",
    default=1,
    show_default=True,
    help="If above 1, also evaluate the mean of this many APS samples.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Use only the first LIMIT photographs.")
@click.option(
    "--size",
    type=click.IntRange(min=32),
    help=(
        "Side length of the photographs in pixels; default: 256, or the prior's native size if"
        " smaller."
    ),
)
@click.option("--sigma", default=0.05, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--prior", default="embedded", show_default=True)
@click.option("--device", type=DEVICE, help="Default: cuda if available.")
@click.option("--threads", type=int, help="CPU threads.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help=(
        "Set a sampler setting (repeatable), for instance inner_steps=40; for one method only,"
        " g2d2.learning_rate=3; for the loss, loss.norm=l2."
    ),
)
def evaluate(
    folder: Path,
    out: Path,
    suite: str | None,
    device: str | None,
    threads: int | None,
    settings: tuple[str, ...],
    **options: Any,
) -> None:
    """Degrade and restore every clean photograph in FOLDER, and write a CSV file with one row per
    picture, tables and contact sheets.
    """
    from aps_core.engines.engine import ImageEngine
    from aps_core.evaluation import Setup
    from aps_core.runtime.process import be_reproducible

    changes: dict[str, Any] = {}
    overrides: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        method, dot, field = name.rpartition(".")
        if dot and method not in (*SamplerSpec.family, LOSS):
            raise InvalidSpec(
                f"--set {name}: there is no method '{method}'; known:"
                f" {', '.join(SamplerSpec.family)}, and {LOSS}."
            )
        (overrides.setdefault(method, {}) if dot else changes)[field] = parse_value(value)
    be_reproducible(threads)
    engine = ImageEngine.load(options["prior"], default_device(device))
    setup = Setup.recommended(engine, changes, overrides.pop(LOSS, {}))
    size = options["size"] or min(256, engine.spec.native_size[0])
    if suite:
        _suite(engine, setup, folder, out, size, options)
    else:
        _comparison(engine, setup, folder, out, size, overrides, options)


def _comparison(
    engine: ImageEngine,
    setup: Setup,
    folder: Path,
    out: Path,
    size: int,
    overrides: dict[str, dict[str, Any]],
    options: dict[str, Any],
) -> None:
    """Compares the selected methods on the selected tasks."""
    from aps_core.evaluation import PROTOCOLS, Plan, Variant, own_task, photographs, strengths
    from aps_core.evaluation import evaluate as run
    from aps_core.evaluation.sheets import contact_sheet
    from aps_core.evaluation.suite import lpips_if_here
    from aps_core.evaluation.tables import summary

    own = tuple(own_task(member_fields(text)) for text in options["operators"])
    tasks = (*options["tasks"], *own) or DEFAULT_TASKS
    protocols = options["protocols"] or ("native",)
    methods = options["methods"] or tuple(engine.spec.samplers())
    _check_names("method", methods, SamplerSpec.family)
    _check_names("protocol", protocols, PROTOCOLS)
    for task in tasks:
        strengths(task, size)
    variants = [Variant(name, settings=overrides.get(name, {})) for name in methods]
    if options["samples"] > 1:
        variants.append(
            Variant("aps", settings=overrides.get("aps", {}), samples=options["samples"])
        )
    photos = photographs(folder, size, options["limit"])
    plan = Plan(
        tasks=tuple(tasks),
        variants=tuple(variants),
        protocols=tuple(protocols),
        sigmas=(options["sigma"],),
        seed=options["seed"],
    )
    report = progress(plan.size(len(photos)))
    rows = run(engine, setup, photos, out, plan, lpips=lpips_if_here(engine.device), report=report)
    text = summary(rows)
    (out / "summary.md").write_text(text)
    contact_sheet(out / "contact_sheet.png", out / "pictures", rows)
    click.echo("\n" + text)
    click.echo(f"Tables and pictures: {out}")


def _suite(
    engine: ImageEngine,
    setup: Setup,
    folder: Path,
    out: Path,
    size: int,
    options: dict[str, Any],
) -> None:
    """Runs the paper's experiments on every given data set."""
    from aps_core.evaluation import photographs
    from aps_core.evaluation import suite as paper_suite
    from aps_core.evaluation.paper import experiments
    from aps_core.evaluation.photographs import ffhq, imagenet

    protocols = options["protocols"] or ("native", "upsampled")
    known = {each.name: each for each in experiments(setup.sampler, protocols, options["seed"])}
    wanted = options["experiments"] or known
    _check_names("experiment", wanted, known)
    chosen = [each for name, each in known.items() if name in wanted]
    limit = options["limit"]
    sets: dict[str, Photographs] = {"photos": photographs(folder, size, limit)}
    if options["ffhq"]:
        sets["ffhq"] = ffhq(options["ffhq"], size, limit)
    if options["imagenet"]:
        if options["imagenet_list"] is None:
            raise InvalidSpec(
                "--imagenet needs --imagenet-list: the file imagenet_val_1k.txt of"
                " XingangPan/deep-generative-prior, which lists the paper's pictures."
            )
        sets["imagenet"] = imagenet(options["imagenet"], options["imagenet_list"], size, limit)
    count = sum(
        experiment.plan.size(len(photos)) for photos in sets.values() for experiment in chosen
    )
    report = progress(count)
    text = paper_suite.run_suite(
        engine,
        setup,
        sets,
        chosen,
        out,
        _questions(options),
        lambda dataset, name, row: report(row, f"{dataset} {name}"),
    )
    click.echo("\n" + text)
    click.echo(f"Report, tables and pictures: {out}")


def _check_names(kind: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidSpec(f"There is no {kind} '{name}'; known: {', '.join(known)}.")


def _questions(options: dict[str, Any]) -> Questions | None:
    if not options["questions"]:
        return None
    from aps_core.engines.engine import TextEngine
    from aps_core.evaluation.suite import Questions

    return Questions(TextEngine.load("embedded_text"), options["questions"], options["limit"])


def progress(count: int) -> Callable[..., None]:
    """Returns a function that prints each computed row of the table.

    Args:
        count: upper bound of the rows; rows of a previous run and rows shared by several
            experiments are not computed again.
    """
    started, finished = time.monotonic(), 0

    def report(row: Row, where: str = "") -> None:
        nonlocal finished
        finished += 1
        click.echo(
            f"[{finished} of at most {count}, {(time.monotonic() - started) / 60:.1f} min] {where}"
            f" {row.protocol} {row.task} {row.image} {row.method}: {row.psnr:.2f} dB  SSIM"
            f" {row.ssim:.3f}  {row.seconds:.1f} s  {row.decodes} decodes"
        )

    return report
