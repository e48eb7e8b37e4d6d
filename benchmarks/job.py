"""Whole restoration jobs: seconds, their split between prior and decoder, memory, and the ratio to
the floor.

    python -m benchmarks.job --steps 4 --inner-steps 5                       # embedded shapes on a
    CPU, under a minute python -m benchmarks.job --device cuda --sizes 256x256 512x512           #
    MAGVIT-v2 and MMaDA-8B in bfloat16 python -m benchmarks.job --device cuda --sizes 1024x1024
    --windows       # the prior in overlapping native windows

Weights are random, with the published shapes, made on the device. The naive run is not run whole:
its seconds are T * M times the median of 20 measured naive iterations, plus the prior's measured
seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from aps_core.aps import sample_aps
from aps_core.priors.mmada.network import MMaDAPrior
from aps_core.runtime.process import be_reproducible
from aps_core.samplers.aps import APSConfig
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.types import StepInfo
from benchmarks.harness import (
    Rates,
    busiest_operators,
    calibrate,
    clock_of,
    machine,
    print_table,
    report,
    timed,
)
from benchmarks.inner_loop import Case
from benchmarks.models import TOKENIZERS, prior, tokenizer


def run(case: Case, model: MMaDAPrior, config: APSConfig, prompt: str) -> dict[str, Any]:
    """One job: its seconds, of them the prior's, and the inner iterations it used."""
    steps: list[StepInfo] = []

    def on_step(info: StepInfo) -> None:
        steps.append(info)

    clock = clock_of(case.device)
    started, wall = clock(), time.perf_counter()
    generator = torch.Generator(case.device).manual_seed(0)
    sample_aps(
        model,
        case.objective,
        config,
        grid=case.grid,
        generator=generator,
        condition=prompt,
        on_step=on_step,
    )
    if case.device.type == "cuda":
        torch.cuda.synchronize()
    seconds = clock() - started
    prior_share = sum(info.prior_seconds for info in steps) / (time.perf_counter() - wall)
    return {
        "seconds": seconds,
        "prior s": prior_share * seconds,
        "iterations": sum(len(info.loss_curve) for info in steps),
    }


def prior_tflop(case: Case, model: MMaDAPrior, config: APSConfig, prompt: str) -> float:
    """Arithmetic of one guided forward."""
    with FlopCounterMode(display=False) as counter:
        model.logits(
            case.z_BL,
            grid=case.grid,
            mask_fraction=0.5,
            condition=prompt,
            guidance_scale=config.guidance_scale,
        )
    return float(counter.get_total_flops()) / 1e12


def measure(
    size: str, args: argparse.Namespace, device: torch.device, rates: Rates
) -> dict[str, Any]:
    """The table's row for one size."""
    network = args.network or ("published" if device.type == "cuda" else "embedded")
    width, height = map(int, size.split("x"))
    case = Case(network, width, height, device)
    _, iteration_floor_ms = case.floor_ms(rates)
    plan = None if args.compile is None else ExecutionPlan(channels_last=True, compile=args.compile)
    model = prior(
        network,
        case.grid,
        not args.windows,
        tokenizer(network, device, torch.bfloat16, plan),
        device,
    )
    config = APSConfig(
        steps=args.steps,
        inner_steps=args.inner_steps,
        inner="adaptive" if args.adaptive else "fixed",
    )
    prompt = " ".join(["word"] * args.text_tokens)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    jobs = [run(case, model, config, prompt) for _ in range(args.repeats + 1)]
    warm = [job["seconds"] for job in jobs[1:]]
    seconds, iterations, prior_s = (
        statistics.median(warm),
        jobs[-1]["iterations"],
        jobs[-1]["prior s"],
    )
    floor = (
        iterations * iteration_floor_ms / 1e3
        + args.steps * prior_tflop(case, model, config, prompt) / rates.tflops
    )
    row = {
        "size": size,
        "seconds": seconds,
        "first": jobs[0]["seconds"],
        "prior s": prior_s,
        "decoder s": seconds - prior_s,
        "iterations": iterations,
    }
    row |= {
        "ms an iteration": (seconds - prior_s) / iterations * 1e3,
        "floor s": floor,
        "times floor": seconds / floor,
    }
    if device.type == "cuda":
        row |= {
            "allocated GiB": torch.cuda.max_memory_allocated() / 2**30,
            "reserved GiB": torch.cuda.max_memory_reserved() / 2**30,
        }
    if args.naive:
        naive = (
            args.steps * args.inner_steps * timed(case.naive(), device).median_ms / 1e3 + prior_s
        )
        row |= {"naive s (from 20 iterations)": naive, "times naive": naive / seconds}
    if args.profile:
        few = config.model_copy(update={"steps": min(2, args.steps)})
        row["profile"] = busiest_operators(lambda: run(case, model, few, prompt), device)
    return row


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--network",
        choices=list(TOKENIZERS),
        help="default: published (with MMaDA-8B) on CUDA, embedded on a CPU",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        metavar="WIDTHxHEIGHT",
        help="default: 256x256 512x512 on CUDA, 128x128 on a CPU",
    )
    parser.add_argument("--steps", type=int, default=15, help="reverse steps T")
    parser.add_argument("--inner-steps", type=int, default=100, help="inner iterations M")
    parser.add_argument(
        "--adaptive",
        action="store_true",
        help="stop inner loops early; meaningless for quality with random weights",
    )
    parser.add_argument(
        "--windows",
        action="store_true",
        help="show the prior 32x32-token windows instead of the whole grid",
    )
    parser.add_argument(
        "--text-tokens", type=int, default=128, help="length of the prompt; 0 turns guidance off"
    )
    parser.add_argument(
        "--compile",
        choices=["none", "norms", "decoder"],
        help="default: the library's choice for the device",
    )
    parser.add_argument("--naive", action="store_true", help="also time the naive iteration")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="also say which operators a job's time goes to (two reverse steps)",
    )
    parser.add_argument("--repeats", type=int, default=1, help="timed jobs after the first")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args(arguments)
    device = torch.device(args.device)
    be_reproducible(args.threads)
    rates = calibrate(device)
    rows: list[dict[str, Any]] = []
    profiles: dict[str, list[dict[str, Any]]] = {}
    for size in args.sizes or (["256x256", "512x512"] if device.type == "cuda" else ["128x128"]):
        rows.append(measure(size, args, device, rates))
        if args.profile:
            profiles[size] = rows[-1].pop("profile")
        print(rows[-1], flush=True)
    facts = machine(device, rates) | {
        "T": args.steps,
        "M": args.inner_steps,
        "inner": "adaptive" if args.adaptive else "fixed",
    }
    for size, profile in profiles.items():
        print(f"\nWhere the time of {size} goes")
        print_table(profile)
    facts |= {"text_tokens": args.text_tokens, "windows": args.windows} | (
        {"profiles": profiles} if profiles else {}
    )
    report("Restoration jobs", facts, rows, args.out)


if __name__ == "__main__":
    main()
