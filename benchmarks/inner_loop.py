"""One inner iteration of Algorithm 1: optimisations switched on one by one, against the naive
version and the floor.

    python -m benchmarks.inner_loop                                   # the embedded tokenizer's
    shapes, one CPU thread python -m benchmarks.inner_loop --device cuda --size 512x512      # the
    published MAGVIT-v2

Naive: float32 tensors, TF32 convolutions where the hardware has them, NCHW, eager, every token's
logits, Adam without fusion. Weights are random. Needs no checkpoint.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from aps_core.aps import quantized_expectation
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.runtime.process import be_reproducible
from aps_core.samplers.aps import APSConfig
from aps_core.sampling.cuda_graph import captured
from aps_core.sampling.inner_loop import InnerStep
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.magvit2 import MagvitTokenizer
from aps_core.tokenizers.magvit2_net import Magvit2
from aps_core.types import MASK, Grid, Objective, Tokenizer
from benchmarks.harness import Rates, calibrate, machine, report, timed, timed_together
from benchmarks.models import DECODER_GB_PER_PIXEL, TOKENIZERS, tokenizer

PLAIN = ExecutionPlan(lean=False)


class Case:
    """A measurement of random pixels with half of the tokens decided."""

    def __init__(self, network: str, width: int, height: int, device: torch.device) -> None:
        self.network, self.device = network, device
        config = TOKENIZERS[network]
        self.grid: Grid = (height // config.stride, width // config.stride)
        self.tokens, self.codes, self.bits = (
            self.grid[0] * self.grid[1],
            2**config.codebook_dim,
            config.codebook_dim,
        )
        random = torch.Generator().manual_seed(0)
        y_CHW = torch.rand(3, height, width, generator=random) * 2 - 1
        self.objective = MeasurementObjective(Bound(lambda x: x), y_CHW.to(device), 0.05)
        self.logits_LK = torch.randn(self.tokens, self.codes, generator=random).to(device)
        undecided = torch.rand(1, self.tokens, generator=random) < 0.5
        self.z_BL = torch.where(
            undecided, MASK, torch.randint(self.codes, (1, self.tokens), generator=random)
        ).to(device)

    def naive(self, weight_gradients: bool = False) -> Callable[[], None]:
        """The iteration as one would first write it."""
        parts = tokenizer(self.network, self.device, torch.float32, PLAIN)
        parts.net.requires_grad_(weight_gradients)
        phi = self.logits_LK.clone().requires_grad_()
        adam = torch.optim.Adam([phi], lr=1.0, foreach=False)

        def step() -> None:
            x_bar = phi.softmax(-1) @ parts.codebook_KD
            x_tilde = x_bar + (parts.quantize(x_bar)[1] - x_bar).detach()
            adam.zero_grad()
            parts.net.zero_grad()
            loss = self.objective(parts.decode(x_tilde[None], self.grid))[0].sum()
            loss.backward()
            float(loss.detach())  # a curve on the host
            adam.step()

        return step

    def ours(
        self, plan: ExecutionPlan, dtype: torch.dtype, graph: bool = False
    ) -> Callable[[], None]:
        """The library's step, begun."""
        step = self.step(tokenizer(self.network, self.device, dtype, plan), fixed=graph)
        self.begin(step)
        replay = captured(step) if graph else step
        self.begin(step)
        return replay

    def step(
        self,
        parts: Tokenizer,
        config: APSConfig = APSConfig(),
        fixed: bool = False,
        objective: Objective | None = None,
    ) -> InnerStep:
        """The library's step on other parts than this case's own."""
        evaluate = partial(
            quantized_expectation,
            tokenizer=parts,
            objective=objective or self.objective,
            grid=self.grid,
        )
        return InnerStep(evaluate, parts.codebook_KD, config, fixed)

    def begin(self, step: InnerStep) -> None:
        """Starts a reverse step at this case's state."""
        step.begin(self.logits_LK[self.z_BL[0] == MASK], self.z_BL, 0.1)

    def floor_ms(self, rates: Rates) -> tuple[float, float]:
        """(TFLOP of the decoder's forward and input gradient, serial floor in ms)."""
        with torch.device("meta"):
            parts = MagvitTokenizer(Magvit2(TOKENIZERS[self.network]), PLAIN)
            e = torch.zeros(1, self.tokens, self.bits, requires_grad=True)
            with FlopCounterMode(display=False) as counter:
                parts.decode(e, self.grid).sum().backward()
        pixels = self.objective.y_BCHW[0, 0].numel()
        table = self.tokens * self.codes * 4e-9
        # logits: read for the expectation, its gradient written, then Adam reads and writes phi and
        # both moments
        gb = (DECODER_GB_PER_PIXEL[self.network] or 0.0) * pixels + 13 * table
        tflop = counter.get_total_flops() / 1e12
        return tflop, rates.floor_ms(tflop, gb)


def variants(case: Case) -> dict[str, Callable[[], Callable[[], None]]]:
    """Name to a function that builds the step; most add one change to the one before."""
    bf16, lean = torch.bfloat16, ExecutionPlan(channels_last=True)
    chosen: dict[str, Callable[[], Callable[[], None]]] = {
        "naive": case.naive,
        "naive, weight gradients on": lambda: case.naive(weight_gradients=True),
        "masked rows, fused Adam": lambda: case.ours(PLAIN, torch.float32),
        "bfloat16": lambda: case.ours(PLAIN, bf16),
        "channels last": lambda: case.ours(replace(PLAIN, channels_last=True), bf16),
        "lean backward, NCHW": lambda: case.ours(ExecutionPlan(), bf16),
        "lean backward, channels last": lambda: case.ours(lean, bf16),
    }
    if case.device.type == "cuda":
        chosen |= {
            "compiled norms": lambda: case.ours(replace(lean, compile="norms"), bf16),
            "graph": lambda: case.ours(replace(lean, compile="norms"), bf16, graph=True),
            "graph without compiling": lambda: case.ours(lean, bf16, graph=True),
            "graph, compiled decoder": lambda: case.ours(
                replace(lean, compile="decoder"), bf16, graph=True
            ),
        }
    return chosen | {"recompute": lambda: case.ours(replace(lean, recompute=True), bf16)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--network", choices=list(TOKENIZERS), help="default: published on CUDA, embedded on a CPU"
    )
    parser.add_argument(
        "--size", help="WIDTHxHEIGHT in pixels; default 512x512 on CUDA, 128x128 on a CPU"
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="names of variants to run")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args(arguments)
    device = torch.device(args.device)
    network = args.network or ("published" if device.type == "cuda" else "embedded")
    width, height = map(
        int, (args.size or ("512x512" if device.type == "cuda" else "128x128")).split("x")
    )
    rates = calibrate(device)
    case = Case(network, width, height, device)
    tflop, floor = case.floor_ms(rates)
    be_reproducible(args.threads)
    chosen = {
        name: build for name, build in variants(case).items() if not args.only or name in args.only
    }
    if device.type == "cuda":  # one after the other, for the memory of each
        timings = {name: timed(build(), device, args.repeats) for name, build in chosen.items()}
    else:
        timings = timed_together(
            {name: build() for name, build in chosen.items()}, device, args.repeats
        )
    naive = next(iter(timings.values())).median_ms
    rows: list[dict[str, Any]] = [
        {
            "variant": name,
            "ms": timing.median_ms,
            "p95": timing.p95_ms,
            "times naive": naive / timing.median_ms,
            "times floor": timing.median_ms / floor,
            "allocated GiB": timing.allocated_gib,
            "reserved GiB": timing.reserved_gib,
        }
        for name, timing in timings.items()
    ]
    facts = machine(device, rates) | {
        "network": network,
        "size": f"{width}x{height}",
        "decoder_tflop": round(tflop, 4),
        "floor_ms": round(floor, 3),
    }
    report("Inner iteration", facts, rows, args.out)


if __name__ == "__main__":
    main()
