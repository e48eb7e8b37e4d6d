"""``aps eval-text``: compares guided with unguided answers to the paper's prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aps_cli.fields import config_from, sampler_options
from aps_core.text.config import TextConfig

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("eval-text")
@click.option(
    "--judge",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of an independent causal language model that scores the answers.",
)
@click.option("--seeds", default=4, show_default=True, help="Number of seeds per prompt.")
@click.option("--limit", type=int, help="Use only the first LIMIT prompts.")
@click.option("--prior", default="embedded_text", show_default=True)
@click.option("--device", default=None, help="cpu or cuda; default: cuda if available.")
@click.option("--threads", type=int, help="CPU threads.")
@click.option(
    "-o",
    "--out",
    type=FILE,
    default=Path("eval-text.csv"),
    show_default=True,
    help="CSV file for all answers and scores.",
)
@sampler_options(TextConfig)
def eval_text(
    judge: Path | None,
    seeds: int,
    limit: int | None,
    prior: str,
    device: str | None,
    threads: int | None,
    out: Path,
    **options: Any,
) -> None:
    """Answer the paper's 20 prompts guided and unguided with the same seeds, and write the scores
    of the reward model and the judge.
    """
    from aps_cli.device import default_device
    from aps_core.evaluation import text as text_evaluation
    from aps_core.runtime.engine import TextEngine
    from aps_core.runtime.process import be_reproducible
    from aps_core.text.rewards.loading import load_reward

    config = TextConfig.model_validate(config_from(options))
    be_reproducible(threads)
    engine = TextEngine.load(prior, default_device(device))
    network = engine.prior
    judge_model = load_reward(judge, network, engine.device, network.model.dtype) if judge else None
    rows = text_evaluation.evaluate(
        engine,
        config,
        seeds,
        judge_model,
        prompts=text_evaluation.PROMPTS[:limit],
        report=lambda row: click.echo(
            f"{row.method:8} seed {row.seed}  reward {row.reward:7.3f}  {row.text[:100]!r}"
        ),
    )
    text_evaluation.write(rows, out)
    click.echo("\n" + text_evaluation.summary(rows))
