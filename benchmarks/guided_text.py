"""Time and memory of one text answer guided by a reward model, and the computed lower bound.

    python -m benchmarks.guided_text                  # shapes of the embedded models on a CPU, 30 s
    python -m benchmarks.guided_text --device cuda    # Dream-7B and Qwen3-0.6B in bfloat16

An answer takes T reverse steps of M gradient steps. Weights are random and are created on the
device. Rows: Dream alone (M = 0), guided, and on CUDA guided without a CUDA graph.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from aps_core.runtime.process import be_reproducible
from aps_core.text.aps import RewardAscent, TextReward, sample_text_aps
from aps_core.text.chat import chat_of
from aps_core.text.config import TextConfig
from aps_core.text.masked_lm import MaskedLM
from aps_core.text.rewards import RewardSpec, YesNoReward
from aps_core.text.rewards.network import RewardNetwork
from aps_core.text.sampling import TextStep
from benchmarks.harness import (
    Rates,
    busiest_operators,
    calibrate,
    clock_of,
    machine,
    print_table,
    report,
)
from benchmarks.models import guided_text

REWARD: RewardSpec = YesNoReward(rubric="word " * 50 + "{prompt} word {answer} word word word")


def run(
    prior: MaskedLM,
    model: RewardNetwork,
    config: TextConfig,
    prompt: str,
    device: torch.device,
    graph: bool | None = None,
) -> dict[str, float]:
    """Computes one answer; returns its seconds and those of the prior's forward passes."""
    steps: list[TextStep] = []
    prompt_BP = torch.tensor([prior.encode(prompt)], device=device)
    reward = TextReward(model, REWARD, chat_of(prompt))
    clock = clock_of(device)
    started = clock()
    generator = torch.Generator(device).manual_seed(0)
    sample_text_aps(
        prior,
        prompt_BP,
        config,
        generator=generator,
        reward=reward,
        on_step=lambda info: steps.append(info),
        graph=graph,
    )
    if device.type == "cuda":
        torch.cuda.synchronize()
    return {"seconds": clock() - started, "prior s": sum(info.prior_seconds for info in steps)}


def floor_seconds(
    prior: MaskedLM,
    model: RewardNetwork,
    config: TextConfig,
    prompt: str,
    rates: Rates,
    device: torch.device,
) -> float:
    """Lower bound in seconds: per pass, the maximum of reading all weights once and of all
    arithmetic at the matrix rate. The reward model has a forward and a backward pass.
    """
    ids_BL = torch.full((1, config.max_new_tokens), prior.mask_id, device=device)
    phi_BLV = torch.zeros(1, config.max_new_tokens, prior.vocab_size, device=device)
    sequence_BS = torch.cat([torch.tensor([prior.encode(prompt)], device=device), ids_BL], dim=1)
    with FlopCounterMode(display=False) as forward:
        prior.logits(sequence_BS)
    step = RewardAscent(TextReward(model, REWARD, chat_of(prompt)), config)
    step.begin(phi_BLV, ids_BL, ids_BL == prior.mask_id)
    with FlopCounterMode(display=False) as inner:
        step()
    weights = [
        sum(p.numel() * p.element_size() for p in part.parameters()) / 1e9
        for part in (prior.model, model.model)
    ]

    def slower(flops: float, gigabytes: float) -> float:
        return max(flops / 1e12 / rates.tflops, gigabytes / rates.gb_per_s)

    return config.steps * (
        slower(forward.get_total_flops(), weights[0])
        + config.inner_steps * slower(inner.get_total_flops(), 2 * weights[1])
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--network",
        choices=["published", "embedded"],
        help="default: published on CUDA, embedded on a CPU",
    )
    parser.add_argument(
        "--steps", type=int, help="reverse steps T; default 128 on CUDA, 32 on a CPU"
    )
    parser.add_argument("--tokens", type=int, help="length of the answer in tokens; default: T")
    parser.add_argument("--inner-steps", type=int, default=3, help="gradient steps M")
    parser.add_argument("--prompt-tokens", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3, help="timed answers after the first one")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="also print the most expensive operators (of four reverse steps)",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args(arguments)
    device = torch.device(args.device)
    be_reproducible(args.threads)
    rates = calibrate(device)
    prior, model = guided_text(
        args.network or ("published" if device.type == "cuda" else "embedded"), device
    )
    steps = args.steps or (128 if device.type == "cuda" else 32)
    config = TextConfig(
        steps=steps, max_new_tokens=args.tokens or steps, inner_steps=args.inner_steps
    )
    prompt = " ".join(["word"] * args.prompt_tokens)
    rows: list[dict[str, Any]] = []
    runs: list[tuple[str, TextConfig, bool | None]] = [
        ("alone", config.model_copy(update={"inner_steps": 0}), None),
        ("guided", config, None),
    ]
    if device.type == "cuda":
        runs.append(("guided, without graph", config, False))
    for name, settings, graph in runs:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        answers = [
            run(prior, model, settings, prompt, device, graph) for _ in range(args.repeats + 1)
        ]
        seconds, floor = (
            statistics.median(a["seconds"] for a in answers[1:]),
            floor_seconds(prior, model, settings, prompt, rates, device),
        )
        rows.append(
            {
                "run": name,
                "seconds": seconds,
                "first": answers[0]["seconds"],
                "floor s": floor,
                "times floor": seconds / floor,
            }
        )
        rows[-1]["prior s"] = statistics.median(a["prior s"] for a in answers[1:])
        if device.type == "cuda":
            rows[-1]["allocated GiB"] = torch.cuda.max_memory_allocated() / 2**30
        print(rows[-1], flush=True)
    facts = machine(device, rates) | {
        "T": steps,
        "M": args.inner_steps,
        "answer tokens": config.max_new_tokens,
        "prompt tokens": args.prompt_tokens,
    }
    if args.profile:
        few = config.model_copy(update={"steps": 4})
        facts["profiles"] = {
            "guided": busiest_operators(lambda: run(prior, model, few, prompt, device), device)
        }
        print_table(facts["profiles"]["guided"])
    report("Guided text", facts, rows, args.out)


if __name__ == "__main__":
    main()
