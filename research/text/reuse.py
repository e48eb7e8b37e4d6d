"""What reused keys and values save and change: the same prompts and seeds with and without.

    python -m training.stories --count 24 --seed 2 > prompts.txt
    python -m research.text.reuse --prompts prompts.txt   # embedded pair, 15 minutes
    python -m research.text.reuse --counted               # Dream-7B on paper, a second

*same tokens*: share of answer tokens equal to those of the exact run in the same blocks; *distance*
and *same token*: the error that every job states. The gain in reward is paired over prompts.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

from aps_core.engines.engine import TextEngine
from aps_core.runtime.process import be_reproducible
from aps_core.tasks import GuideSpec, Inputs, TextResult, run
from aps_core.text.blocks import blocks_of
from aps_core.text.config import TextConfig
from benchmarks.cards import CARDS, Card
from benchmarks.harness import print_table
from research.common.arguments import parser_of
from research.common.tables import gained

DREAM_PARAMETERS = 7.07e9
"""Weights that a pass reads and multiplies: Dream-7B without its input embedding."""
REWARD_PARAMETERS = 4.4e8
"""Weights of the layers of Qwen3-0.6B."""
REWARD_WIDTH, VOCABULARY = 1024, 151_936
LOGIT_PASSES = 10
"""Times that an inner step reads or writes logits in float32: softmax, its gradient, and Adam."""
TOKENS = 32
VARIANTS: dict[str, dict[str, Any]] = {
    "published order": {},
    "blocks of 8": {"block_length": 8},
    **{
        f"{reuse}, {refreshes} per block": {
            "block_length": 8,
            "reuse": reuse,
            "refreshes": refreshes,
        }
        for reuse, refreshes in product(("prefix", "dual"), (1, 2))
    },
}
EXACT = "blocks of 8"


class Made(NamedTuple):
    """One answer."""

    ids: list[int]
    reward: float
    prior_seconds: float
    reuse: dict[str, float | None]


def measured(prompts: list[str], guidance: bool, answers_each: int) -> list[dict[str, Any]]:
    """Table of all variants; of several answers to a prompt, the best is compared."""
    engine = TextEngine.load("embedded_text")

    def answer(prompt: str, settings: dict[str, Any]) -> Made:
        sampler = {"max_new_tokens": TOKENS, "steps": TOKENS, **settings}
        spec = GuideSpec(
            prompt=prompt, guidance=guidance, num_samples=answers_each, sampler=sampler
        )
        made = cast(TextResult, run(spec, Inputs(), engine))
        return Made(made.answer.ids, made.answer.reward, made.seconds["prior"], made.reuse or {})

    answers: dict[str, list[Made]] = {name: [] for name in VARIANTS}
    for prompt in prompts:  # the variants by turns, so that the machine's load is the same for all
        for name, settings in VARIANTS.items():
            answers[name].append(answer(prompt, settings))
    return [row(name, made, answers[EXACT]) for name, made in answers.items()]


def row(name: str, made: list[Made], exact: list[Made]) -> dict[str, Any]:
    """One variant beside the exact run in the same blocks."""

    def mean(key: str) -> float | None:
        known = [value for each in made if (value := each.reuse.get(key)) is not None]
        return fmean(known) if known else None

    pairs = list(zip(made, exact, strict=True))
    same = [a == b for one, other in pairs for a, b in zip(one.ids, other.ids, strict=True)]
    return {
        "variant": name,
        "positions": mean("computed_share") or 1.0,
        "prior time": sum(one.prior_seconds for one in made)
        / sum(other.prior_seconds for other in exact),
        "distance": mean("mean_distance"),
        "same token": mean("same_token"),
        "same tokens": fmean(same),
        "reward": fmean(one.reward for one in made),
        "gain": gained([one.reward - other.reward for one, other in pairs], ".3f"),
    }


def guidance_floor(answers: int, card: Card) -> float:
    """Seconds of the 128 x 3 inner steps of guidance: forward and backward pass of the reward model
    over the answers (the prompt's keys are cached), expected embeddings of the undecided tokens
    (half of the 128 on average), and their logits.
    """
    flops, rate = card.tflops * 1e12, card.gb_per_s * 1e9
    layers = max(4 * REWARD_PARAMETERS * 128 * answers / flops, 4 * REWARD_PARAMETERS / rate)
    table = REWARD_WIDTH * VOCABULARY
    embeddings = max(4 * table * 64 * answers / flops, 4 * table / rate)
    logits = LOGIT_PASSES * 4 * 64 * answers * VOCABULARY / rate
    return 128 * 3 * (layers + embeddings + logits)


def counted() -> list[dict[str, Any]]:
    """Floor of one Dream-7B answer of 128 tokens in 128 steps, in blocks of 32, on an H200: the
    slower of arithmetic and reading the weights, for the prior's passes and with guidance.
    """
    card = CARDS[0]

    def seconds(positions: int) -> float:
        arithmetic = 2 * DREAM_PARAMETERS * positions / (card.tflops * 1e12)
        return max(arithmetic, 2 * DREAM_PARAMETERS / (card.gb_per_s * 1e9))

    rows = []
    for prompt, answers, reuse in product((30, 1000), (1, 4, 16), ("none", "prefix", "dual")):
        length, widths = prompt + 128, []
        for block in blocks_of(TextConfig(block_length=32)):
            end = 128 if reuse == "prefix" else block.end
            window = length if reuse == "none" else end - block.start + 1
            steps = block.last - block.first
            refreshes = 0 if reuse == "none" else 2
            # a refresh in the middle of a block follows a pass over the window, to compare
            widths += [window] * (steps - refreshes // 2) + [length] * refreshes
        rows.append(
            {
                "prompt": prompt,
                "answers": answers,
                "reuse": reuse,
                "positions": sum(widths) / (128 * length),
                "prior_s": (prior := sum(seconds(answers * width) for width in widths)),
                "guided_s": prior + guidance_floor(answers, card),
            }
        )
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--prompts", type=Path, help="text file with one prompt per line")
    parser.add_argument("--answers", type=int, default=1, help="answers sampled together")
    parser.add_argument("--unguided", action="store_true", help="leave out the guided answers")
    parser.add_argument("--counted", action="store_true", help="only count the work of Dream-7B")
    args = parser.parse_args(arguments)
    if args.counted or args.prompts is None:
        print_table(counted())
        return
    be_reproducible(1)
    prompts = args.prompts.read_text().splitlines()
    for guidance in (False,) if args.unguided else (False, True):
        print("Guided" if guidance else "Unguided", flush=True)
        print_table(measured(prompts, guidance, args.answers))


if __name__ == "__main__":
    main()
