"""What it saves to keep the keys and values of the text before the answer, and what each relaxation
costs: milliseconds of one inner step on the embedded text pair, measured alternately in one run.

    python -m research.text.reward_prefix            # one CPU thread, about a minute

An inner step evaluates the reward of the unfinished answer and its gradient, and takes one Adam
step on all logits. Its prefix is the prompt in the reward's layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from aps_core.engines.engine import TextEngine
from aps_core.priors.embedded.text import FOLDER
from aps_core.runtime.process import be_reproducible
from aps_core.text.aps import RewardAscent, TextReward
from aps_core.text.chat import chat_of
from aps_core.text.config import TextConfig
from aps_core.text.rewards.loading import load_reward
from benchmarks.harness import Rates, calibrate, machine, report, timed_together
from research.common.arguments import parser_of

RELAXATIONS: dict[str, dict[str, str]] = {
    "expectation": {"type": "expectation"},
    "aps, likeliest": {"type": "aps", "token": "likeliest"},
    "aps, drawn": {"type": "aps"},
    "entrgi, drawn": {"type": "entrgi"},
}


def inner_step(engine: TextEngine, words: int, tokens: int, relaxation: str, reuse: bool) -> Any:
    """One inner step for a prompt of ``words`` words and a wholly undecided answer."""
    device = engine.device
    model = load_reward(FOLDER / "reward", engine.prior, device, engine.prior.model.dtype)
    model.reuse = reuse
    config = TextConfig(max_new_tokens=tokens, relaxation=RELAXATIONS[relaxation])
    reward = TextReward(model, engine.spec.reward, chat_of(" ".join(["oak"] * words)))
    step = RewardAscent(reward, config)
    random = torch.Generator(device).manual_seed(0)
    phi_BLV = torch.randn(1, tokens, engine.prior.vocab_size, generator=random, device=device)
    ids_BL = torch.full((1, tokens), engine.prior.mask_id, device=device)
    step.begin(phi_BLV, ids_BL, ids_BL == engine.prior.mask_id)
    step.tensors["uniform"].uniform_(generator=random)
    return step


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tokens", type=int, default=32, help="length of the answer")
    parser.add_argument("--words", type=int, nargs="+", default=[8, 30, 90], help="of the prompt")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args(arguments)
    be_reproducible(1)
    engine = TextEngine.load("embedded_text")
    rates: Rates = calibrate(engine.device)
    rows: list[dict[str, Any]] = []
    for words in args.words:
        steps = {
            name: inner_step(engine, words, args.tokens, "aps, drawn", reuse)
            for name, reuse in (("kept", True), ("computed anew", False))
        }
        times = timed_together(steps, engine.device, args.repeats)
        kept, anew = (times[name].median_ms for name in steps)
        rows.append(
            {"prompt words": words, "kept ms": kept, "anew ms": anew, "anew / kept": anew / kept}
        )
    report("Keys and values of the prompt", machine(engine.device, rates), rows, args.out)
    steps = {name: inner_step(engine, 30, args.tokens, name, True) for name in RELAXATIONS}
    costs = timed_together(steps, engine.device, args.repeats)
    base = costs["expectation"].median_ms
    table = [
        {"relaxation": name, "ms": cost.median_ms, "of expectation": cost.median_ms / base}
        for name, cost in costs.items()
    ]
    report("Relaxations", {"answer tokens": args.tokens}, table, None)


if __name__ == "__main__":
    main()
