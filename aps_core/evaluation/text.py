"""Guided against unguided answers to the paper's prompts: the reward that was followed, and a judge
that was not.

Prompts: paper, table "Question Answering Benchmark Prompts" (made by its authors with Qwen2.5-3B).
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev

import torch

from aps_core.runtime.engine import TextEngine
from aps_core.tasks import GuideSpec, Inputs, TextResult, run
from aps_core.text.aps import TextReward
from aps_core.text.config import TextConfig
from aps_core.text.rewards import RewardSpec
from aps_core.text.rewards.language_model import RewardModel

PROMPTS = (
    "Write a short paragraph describing your favorite food.",
    "Create a list of three things you love most about your weekend.",
    (
        "Write a two-sentence story starting with `Once upon a time, I found a mysterious letter in"
        " my mailbox.'"
    ),
    "Provide reasons why you like singing.",
    "Write about your pet's daily routine.",
    "Explain in two sentences why spending time outdoors is important.",
    "Create a list of three things you did last Saturday.",
    "Write down your dream for your dream job, describing what you see in it.",
    "Create a simple diary entry about your best day at school.",
    "Write a paragraph that explains why studying is beneficial.",
    "Enumerate three favorite hobbies you have incorporated into your weekend routine.",
    "Write one sentence describing what you did last Saturday.",
    "Create a sentence about your day, detailing what you did at home.",
    "Write about one day in your life, focusing on what you watched on TV.",
    "Create a list of three things you like about your city.",
    "Describe your favorite book in one sentence.",
    "Write a short summary (5 sentences) of a movie you recently watched.",
    "Describe one thing you did today that made you happy.",
    "Write (4 sentences) why home cooking is important to you.",
    "Create a paragraph (5 sentences) about your favorite day in the park.",
)


@dataclass(frozen=True)
class Row:
    """One answer: what it scored with the reward model and with the judge (None without one)."""

    prompt: str
    seed: int
    method: str
    reward: float
    judge: float | None
    distinct: float
    """Share of distinct tokens in the answer: low where it repeats itself."""
    tokens: int
    seconds: float
    text: str


def evaluate(
    engine: TextEngine,
    config: TextConfig,
    seeds: int,
    judge: RewardModel | None = None,
    reward: RewardSpec | None = None,
    prompts: tuple[str, ...] = PROMPTS,
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Answers every prompt guided and unguided from the same seeds. The judge reads what the reward
    is read as.
    """
    rows = []
    for prompt in prompts:
        for seed in range(seeds):
            spec = GuideSpec(
                prior=engine.spec.type, prompt=prompt, seed=seed, reward=reward, sampler=config
            )
            for guidance in (False, True):
                result = run(spec.model_copy(update={"guidance": guidance}), Inputs(), engine)
                assert isinstance(result, TextResult)
                rows.append(_row(prompt, seed, result, judge, engine, reward or engine.spec.reward))
                report(rows[-1])
    return rows


def _row(
    prompt: str,
    seed: int,
    result: TextResult,
    judge: RewardModel | None,
    engine: TextEngine,
    kind: RewardSpec,
) -> Row:
    answer = result.answer
    ids_BL = torch.tensor([answer.ids], device=engine.device)
    kept = (
        answer.ids[: answer.ids.index(engine.prior.eos_id)]
        if engine.prior.eos_id in answer.ids
        else answer.ids
    )
    judged = float(TextReward(judge, kind, prompt).of(ids_BL)) if judge else None
    distinct = len(set(kept)) / max(1, len(kept))
    method = "guided" if answer.guided else "unguided"
    return Row(
        prompt,
        seed,
        method,
        answer.reward,
        judged,
        distinct,
        len(kept),
        result.seconds["total"],
        answer.text,
    )


def summary(rows: list[Row]) -> str:
    """Means as a Markdown table, and in how many pairs guidance won."""
    plain, guided = (
        [row for row in rows if row.method == method] for method in ("unguided", "guided")
    )
    lines = [
        "| method | reward | judge | distinct tokens | tokens | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for some in (plain, guided):
        reward, distinct, tokens, seconds = (
            mean(getattr(row, name) for row in some)
            for name in ("reward", "distinct", "tokens", "seconds")
        )
        judged = [row.judge for row in some if row.judge is not None]
        judge = f"{mean(judged):.3f}" if judged else "-"
        lines.append(
            f"| {some[0].method} | {reward:.3f} | {judge} | {distinct:.2f} | {tokens:.1f} |"
            f" {seconds:.2f} |"
        )
    lines += [
        "",
        _gains("reward", [g.reward - p.reward for p, g in zip(plain, guided, strict=True)]),
    ]
    if all(row.judge is not None for row in rows):
        lines.append(
            _gains(
                "judge",
                [(g.judge or 0.0) - (p.judge or 0.0) for p, g in zip(plain, guided, strict=True)],
            )
        )
    return "\n".join(lines)


def _gains(name: str, gains: list[float]) -> str:
    error = f" (standard error {stdev(gains) / len(gains) ** 0.5:.3f})" if len(gains) > 1 else ""
    return (
        f"Mean gain in {name} {mean(gains):+.3f}{error}; guided above unguided in"
        f" {sum(gain > 0 for gain in gains)} of {len(gains)} pairs."
    )


def write(rows: list[Row], path: Path) -> None:
    """Every answer as a CSV line."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
