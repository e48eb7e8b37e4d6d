"""``aps eval-text``: compares ways to answer prompts, at the same seeds and about equal time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aps_cli.device import DEVICE, default_device
from aps_cli.fields import config_from, sampler_options
from aps_core.text.config import TextConfig

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("eval-text")
@click.option(
    "--questions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="RM-Bench, JudgeBench or RewardBench 2 file (.json, .jsonl), or .txt with a prompt per"
    " line. Default: the paper's 20 prompts.",
)
@click.option(
    "--judge",
    type=FOLDER,
    help="Folder of an independent model that scores answers; its classifier head if it has one.",
)
@click.option(
    "--independent",
    type=FOLDER,
    help="Folder of a causal language model that gives the answers' likelihood.",
)
@click.option("--seeds", default=4, show_default=True, help="Number of seeds per prompt.")
@click.option("--limit", type=int, help="Use only the first LIMIT prompts.")
@click.option(
    "--num-samples", default=1, show_default=True, help="Guided answers sampled together."
)
@click.option(
    "--best-of",
    type=click.IntRange(1, 16),
    help="K of best-of-K without guidance. Default: as many as take the time of guidance here.",
)
@click.option("--reward", help="Reward type. Default: the prior's.")
@click.option("--reward-model", help="Checkpoint of the reward model. Default: the prior's.")
@click.option("--prior", default="embedded_text", show_default=True)
@click.option("--device", type=DEVICE, help="Default: cuda if available.")
@click.option("--threads", type=int, help="CPU threads.")
@click.option(
    "-o",
    "--out",
    type=FILE,
    default=Path("eval-text.csv"),
    show_default=True,
    help="CSV file for all answers and scores. If it exists, its answers are kept and the missing"
    " ones are added.",
)
@sampler_options(TextConfig)
def eval_text(
    questions: Path | None,
    judge: Path | None,
    independent: Path | None,
    seeds: int,
    limit: int | None,
    num_samples: int,
    best_of: int | None,
    reward: str | None,
    reward_model: str | None,
    prior: str,
    device: str | None,
    threads: int | None,
    out: Path,
    **options: Any,
) -> None:
    """Answer prompts without guidance, with the best of several unguided answers, and guided with
    every relaxation; write all answers with their scores, and print means and gains with paired
    intervals.
    """
    from aps_core.engines.engine import TextEngine
    from aps_core.evaluation import text, text_summary
    from aps_core.evaluation.questions import load_questions, paper_questions
    from aps_core.evaluation.text_file import AnswerFile
    from aps_core.runtime.process import be_reproducible
    from aps_core.text.rewards import RewardSpec
    from aps_core.text.rewards.loading import load_reward
    from aps_core.text.rewards.network import Kind, RewardNetwork

    config = TextConfig.model_validate(config_from(options))
    asked = (load_questions(questions) if questions else paper_questions())[:limit]
    be_reproducible(threads)
    engine = TextEngine.load(prior, default_device(device))
    dtype = engine.prior.model.dtype

    def loaded(folder: Path | None, kind: Kind) -> RewardNetwork | None:
        """A model; one that serves as both kinds is read as ``kind``."""
        if folder is None:
            return None
        return load_reward(folder, engine.prior, engine.device, dtype, kind)

    named = reward or (engine.spec.reward.type if reward_model else None)
    comparison = text.Comparison(
        engine=engine,
        config=config,
        seeds=seeds,
        reward=RewardSpec.named(named)(type=named, model=reward_model) if named else None,
        judges=text.Judges.of(
            engine, loaded(judge, "classifier"), loaded(independent, "language_model")
        ),
    )
    file = AnswerFile(out)
    best_of = best_of or file.settings.get("best_of")
    if best_of is None:
        best_of = comparison.matching_best_of(num_samples, asked[0].prompt)
    settings = {
        "prior": prior,
        "reward": named,
        "reward_model": reward_model,
        "judge": str(judge),
        "independent": str(independent),
        "best_of": best_of,
        "num_samples": num_samples,
        "sampler": config.model_dump(mode="json", include=config.model_fields_set),
    }
    file.begin(settings)

    def report(row: text.Row) -> None:
        file.append(row)
        click.echo(f"{row.method:11} seed {row.seed}  reward {row.reward:7.3f}  {row.text[:100]!r}")

    methods = comparison.methods(num_samples, best_of)
    comparison.evaluate(asked, methods, report, known={row.key for row in file.rows})
    click.echo("\n" + text_summary.summary(file.rows))
    if (accuracy := comparison.accuracy(asked)) is not None:
        click.echo(f"\nThe reward model prefers the right answer in {accuracy:.1%} of the pairs.")
