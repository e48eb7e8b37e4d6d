"""What one inner iteration costs before it runs: arithmetic, bytes and memory, counted on tensors
without data, with the floor and a model of its time on several cards. Needs no GPU.

    python -m benchmarks.work                    # the tables of docs/gpu.md, about half a minute

*Before*: the perceptual term through the tokenizer's own encoder, the prior in 32x32-token windows,
the attention's backward pass in the deterministic memory-efficient kernel. *After*: VGG16, whole
sequences, attention by two matrix products. Arithmetic, bytes and memory are counts; seconds are
estimates, from the rates in :mod:`benchmarks.cards`; the one GPU run took twice as long.
"""

from __future__ import annotations

import argparse
import statistics
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from aps_core.aps import quantized_expectation
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.sampling.windows import window_starts
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.frozen import GroupNorm
from aps_core.tokenizers.magvit2 import MagvitTokenizer
from aps_core.tokenizers.magvit2_net import AttnBlock, ResBlock, Upsample
from aps_core.types import Features, Grid
from benchmarks.cards import CARDS
from benchmarks.models import Term, features, prior, tokenizer

SIZES = ((256, 256), (512, 512), (1024, 512), (1024, 1024))
STEPS, INNER = 15, 100
"""The paper's T and M."""
TEXT = 128
"""Tokens of the prompt."""
NATIVE = 32
"""Tokens along a side of the published prior's windows."""
TABLES = 5
"""Float32 tables of logits beside those of the iteration: the prior's, the masked rows', their
start, two of Adam.
"""
META = torch.device("meta")
Version = Literal["before", "after"]


@dataclass(frozen=True)
class Work:
    """One size of the default job."""

    size: str
    tokens: int
    decoder_tflop: float
    term_tflop: float
    gb: float
    """Bytes of an iteration with fused normalisation: decoder, perceptual term, logits."""
    gib: float
    """Largest sum of tensors alive at once, weights among them."""
    prior_tflop: float
    """Of one guided forward pass."""

    @property
    def tflop(self) -> float:
        return self.decoder_tflop + self.term_tflop


class LiveBytes(TorchDispatchMode):
    """Follows the sum of the bytes of all tensors made within it, and its peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak: int = 0
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and (held := tensor.untyped_storage()) not in self._seen:
                self._seen.add(held)
                self.now += held.nbytes()
                weakref.finalize(held, self._freed, held.nbytes())
        self.peak = max(self.peak, self.now)
        return out

    def _freed(self, count: int) -> None:
        self.now -= count


def layer_gigabytes(net: nn.Module, call: Callable[[], object]) -> float:
    """Bytes that forward and backward pass move at least, in GB: a layer reads and writes each of
    its tensors once per pass over them.

    A normalisation, SiLU included, takes a reduction and a pointwise pass: it reads twice and
    writes once forward, and reads twice two tensors and writes one backward. ReLU is part of its
    convolution.
    """
    total = 0

    def count(module: nn.Module, args: tuple[Tensor, ...], out: Any) -> None:
        nonlocal total
        if not isinstance(out, Tensor):
            return
        read, written = args[0].nbytes, out.nbytes
        match module:
            case GroupNorm():
                total += 8 * written
            case ResBlock() | AttnBlock():  # the sum with its input
                total += 2 * written
            case Upsample():
                total += 2 * (read + written)  # nearest neighbours, beside its convolution
            case nn.ReLU():
                pass
            case _ if not any(True for _ in module.children()):
                total += 2 * (read + written)

    hooks = [module.register_forward_hook(count) for module in net.modules()]
    with torch.no_grad():
        call()
    for hook in hooks:
        hook.remove()
    return total / 1e9


def tflop_of(call: Callable[[], object]) -> float:
    """Arithmetic of ``call``, as PyTorch's counter sees it."""
    with FlopCounterMode(display=False) as counter:
        call()
    return float(counter.get_total_flops()) / 1e12


def count(width: int, height: int, version: Version) -> Work:
    """Counts one size."""
    term: Term = "tokenizer" if version == "before" else "vgg16"
    parts = tokenizer("published", META, torch.bfloat16, ExecutionPlan(channels_last=True))
    grid = height // parts.stride, width // parts.stride
    tokens, codes = grid[0] * grid[1], len(parts.codebook_KD)
    e = torch.zeros(1, tokens, parts.codebook_KD.shape[1], device=META, requires_grad=True)
    x = torch.zeros(1, 3, height, width, device=META, requires_grad=True)
    seen = features(term, parts, META, torch.bfloat16)
    assert seen is not None
    network = seen if isinstance(seen, nn.Module) else parts.net.encoder
    return Work(
        size=f"{width}x{height}",
        tokens=tokens,
        decoder_tflop=tflop_of(lambda: parts.decode(e, grid).sum().backward()),
        term_tflop=tflop_of(lambda: torch.stack([f.sum() for f in seen(x)]).sum().backward()),
        gb=layer_gigabytes(parts.net.decoder, lambda: parts.decode(e, grid))
        + layer_gigabytes(network, lambda: seen(x))
        + 13 * tokens * codes * 4e-9,  # see Case.floor_ms
        gib=(weight_bytes(parts, network) + iteration_bytes(parts, seen, grid)) / 2**30,
        prior_tflop=prior_tflop(grid, version),
    )


def weight_bytes(parts: MagvitTokenizer, term: nn.Module) -> int:
    """Of everything resident: prior, tokenizer, and the perceptual network where it is another."""
    model = prior("published", (NATIVE, NATIVE), True, parts, META).model
    held: set[Tensor] = {p for net in (model, parts.net, term) for p in net.parameters()}
    return sum(p.numel() * p.element_size() for p in held)


def iteration_bytes(parts: MagvitTokenizer, seen: Features, grid: Grid) -> int:
    """Peak of the tensors of one inner iteration, the logits' tables among them."""
    shape = grid[0] * grid[1], len(parts.codebook_KD)
    with LiveBytes() as live:
        y_CHW = torch.zeros(3, grid[0] * parts.stride, grid[1] * parts.stride, device=META)
        objective = MeasurementObjective(
            Bound(lambda x: x), y_CHW, 0.05, perceptual=seen, perceptual_weight=1e-3
        )
        resident = [torch.zeros(shape, device=META) for _ in range(TABLES)]
        phi = torch.zeros(shape, device=META, requires_grad=True)
        live.peak = live.now  # what the target's features took on their way is over
        loss_B, _, _ = quantized_expectation(phi, lambda x_ND: x_ND[None], parts, objective, grid)
        loss_B.sum().backward()
        del resident
    return int(live.peak)


def prior_tflop(grid: Grid, version: Version) -> float:
    """Arithmetic of one guided forward pass over a grid, whole or in windows."""
    shown = (NATIVE, NATIVE) if version == "before" else grid
    parts = tokenizer("published", META, torch.bfloat16)
    model = prior("published", shown, True, parts, META)
    z_BL = torch.zeros(1, shown[0] * shown[1], dtype=torch.long, device=META)
    once = tflop_of(
        lambda: model.logits(
            z_BL,
            grid=shown,
            mask_fraction=0.5,
            condition=" ".join(["word"] * (TEXT - 3)),
            guidance_scale=3.5,
        )
    )
    return once * (1 if shown == grid else windows(grid))


def windows(grid: Grid) -> float:
    """Mean number of windows over all shifts."""
    return statistics.mean(
        len(window_starts(grid[0], NATIVE, shift)) * len(window_starts(grid[1], NATIVE, shift))
        for shift in range(NATIVE * 3 // 4)
    )


def counted(works: list[Work]) -> list[str]:
    """The counts as a Markdown table."""
    lines = [
        "| size | tokens | TFLOP an iteration: decoder + perceptual | GB an iteration"
        " | peak GiB with weights | TFLOP a prior step |",
        "|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {w.size} | {w.tokens} | {w.decoder_tflop:.2f} + {w.term_tflop:.2f} | {w.gb:.1f}"
        f" | {w.gib:.1f} | {w.prior_tflop:.0f} |"
        for w in works
    ]


def predicted(works: list[Work], version: Version) -> list[str]:
    """Floor and modelled time of a job on every card as a Markdown table."""
    lines = [
        "| size | " + " | ".join(f"{c.name}: ms an iteration, job s" for c in CARDS) + " |",
        "|---|" + "---|" * len(CARDS),
    ]
    for work in works:
        cells = []
        for card in CARDS:
            slow = card.one_block_ms(work.tokens) if version == "before" else 0.0
            floor = card.floor_ms(work.tflop, work.gb)
            model = card.model_ms(work.tflop, work.gb) + slow
            steps = STEPS * work.prior_tflop / card.tflops
            cells.append(
                f"{floor:.1f} / {model:.1f}, {STEPS * INNER * floor / 1e3 + steps:.3g}"
                f" / **{STEPS * INNER * model / 1e3 + steps / card.prior:.3g}**"
            )
        lines.append(f"| {work.size} | " + " | ".join(cells) + " |")
    return lines


def tables() -> str:
    """All tables, as docs/gpu.md holds them."""
    parts: list[str] = []
    for version in ("before", "after"):
        works = [count(width, height, version) for width, height in SIZES]
        parts += [
            f"**{version.capitalize()}**, counted:",
            "\n".join(counted(works)),
            f"**{version.capitalize()}**, estimated, floor / model:",
            "\n".join(predicted(works, version)),
        ]
    return "\n\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    print(tables())


if __name__ == "__main__":
    main()
