r"""Stage 2 of the documents prior: a convolutional masked prior that also hears uncertain tokens.

    python -m training.documents.prior --corpus CORPUS --out runs/documents-prior \
        --tokenizer runs/documents-tokenizer-annealed

Stops, continues and anneals like :mod:`training.tokenizer`. The loss is the cross-entropy of the
undecided tokens of 128-pixel crops, with MMaDA's mask ratios cos(pi/2 u). A share of the decided
tokens' bits is flipped, because the sampler's anchors may be wrong. In two of three crops, some of
the undecided tokens have evidence: each bit is seen through a Gaussian channel of a random
strength, so that the evidence states truthfully how uncertain it is.
"""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from aps_core.priors.convolutional.network import (
    ConvolutionalConfig,
    ConvolutionalNet,
    ConvolutionalPrior,
)
from aps_core.priors.embedded.image import fast_dtype
from aps_core.tokenizers.magvit2 import load_magvit
from aps_core.types import MASK, Grid
from training import runs
from training.documents.crops import DocumentCrops, add_workers, stream
from training.documents.tokenizer import held_out
from training.loop import device_and_threads, steps_done, train
from training.muon import muon_and_adamw
from training.prior import flipped

HELD_OUT = 16
"""Pictures of each validation set."""

PLAIN_SHARE, CRUDE_SHARE = 0.25, 0.5
"""Shares of the pictures without evidence and with that of a softened picture."""

TOLD = 0.5
"""Factor on the latents of a softened picture: what the sampler tells (its field ``told``)."""

SOFTEST = 8
"""Reach of a softening kernel in pixels."""

STRENGTHS = (0.02, 4.0)
"""Least and largest mean of a bit's evidence e, where ``tanh(e)`` is its expectation."""


RECENT, USES = 512, 4
"""Crops to draw a step from, and how often each is used on the mean."""


def channel(codes_BLD: Tensor, generator: Generator) -> Tensor:
    """Evidence (B, L, D) of tokens, each bit seen through a Gaussian channel.

    A bit b in {-1, +1} of strength a gives ``e ~ N(a b, a)``, of which ``tanh(e)`` is exactly the
    expectation of b. Strengths vary between pictures, less between tokens and bits.
    """
    batch, length, bits = codes_BLD.shape
    low, high = map(math.log, STRENGTHS)
    strength = low + (high - low) * torch.rand(batch, 1, 1, generator=generator)
    strength = strength + 0.7 * torch.randn(batch, length, 1, generator=generator)
    strength = strength + 0.7 * torch.randn(batch, 1, bits, generator=generator)
    strength_BLD = strength.exp().to(codes_BLD)
    noise_BLD = torch.randn(batch, length, bits, generator=generator).to(codes_BLD)
    e_BLD: Tensor = strength_BLD * codes_BLD + strength_BLD.sqrt() * noise_BLD
    return e_BLD


def softened(x_BCHW: Tensor, generator: Generator) -> Tensor:
    """Pictures under Gaussian blur of a random size, shape and direction, with a little noise: what
    a crude estimate knows, whatever it was made from.
    """
    count, channels = x_BCHW.shape[:2]

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    wide = uniform(math.log(0.3), math.log(3.5)).exp()
    narrow = wide * uniform(0.4, 1.0)
    turn = uniform(0.0, math.pi)
    axis = torch.arange(-SOFTEST, SOFTEST + 1.0)
    across = turn.cos() * axis + turn.sin() * axis[:, None]
    along = turn.cos() * axis[:, None] - turn.sin() * axis
    kernel_Bkk = (-(across / wide).square() / 2 - (along / narrow).square() / 2).exp()
    kernel_Bkk = kernel_Bkk / kernel_Bkk.sum((1, 2), keepdim=True)
    padded = F.pad(x_BCHW, (SOFTEST,) * 4, mode="replicate").flatten(0, 1)[None]
    weight = kernel_Bkk.repeat_interleave(channels, 0)[:, None].to(x_BCHW)
    blurred = F.conv2d(padded, weight, groups=count * channels)[0].unflatten(0, (count, channels))
    sigma_B111 = uniform(math.log(0.005), math.log(0.15)).exp()[..., None].to(x_BCHW)
    noise = torch.randn(x_BCHW.shape, generator=generator).to(x_BCHW)
    soft_BCHW: Tensor = (blurred + sigma_B111 * noise).clamp(-1, 1)
    return soft_BCHW


def evidence(codes_BLD: Tensor, crude_BLD: Tensor, generator: Generator) -> Tensor:
    """Evidence (B, L, D) of a picture's tokens: none, of a channel, or the latents ``crude_BLD`` of
    the softened picture. In half of the pictures, a share of the tokens has none.
    """
    batch, length, _ = codes_BLD.shape
    kind_B11 = torch.rand(batch, 1, 1, generator=generator).to(codes_BLD.device)
    heard_BLD = torch.where(kind_B11 < CRUDE_SHARE, TOLD * crude_BLD, channel(codes_BLD, generator))
    share_B1 = torch.rand(batch, 1, generator=generator)
    share_B1 = share_B1 * (torch.rand(batch, 1, generator=generator) < 0.5)
    silent_BL = torch.rand(batch, length, generator=generator) < share_B1
    silent_BL1 = silent_BL[..., None].to(codes_BLD.device) | (kind_B11 > 1 - PLAIN_SHARE)
    return heard_BLD.masked_fill(silent_BL1, 0.0)


class ConvolutionalLoss:
    """Draws crops, encodes, masks and disturbs them; cross-entropy of the undecided tokens."""

    def __init__(
        self,
        prior: ConvolutionalPrior,
        draw: Callable[[], Tensor],
        batch: int,
        flips: float,
        seed: int,
    ) -> None:
        """``draw``: some pictures (N, 3, H, W) in [-1, 1]. ``batch``: crops B of a step, drawn from
        the last :data:`RECENT` pictures. ``flips``: largest share of flipped bits.
        """
        self.prior = prior
        self.draw = draw
        self.batch = batch
        self.flips = flips
        self.generator = Generator().manual_seed(seed)
        self.recent: deque[tuple[Tensor, Tensor]] = deque(maxlen=RECENT)

    def pictures(self) -> tuple[Tensor, Tensor, Grid]:
        """Codes (B, L), latents (B, L, D) of the softened pictures, and their grid. Drawing and
        encoding a crop takes a quarter of a step, so each is used several times, with other masks
        and evidence.
        """
        tokenizer = self.prior.tokenizer
        x_NCHW = self.draw().to(tokenizer.codebook_KD.device)
        with torch.no_grad():
            crude_NDhw = tokenizer.features(softened(x_NCHW, self.generator))
        grid = (crude_NDhw.shape[2], crude_NDhw.shape[3])
        crude_NLD = crude_NDhw.flatten(2).transpose(1, 2)
        self.recent.extend(zip(tokenizer.encode(x_NCHW), crude_NLD, strict=True))
        chosen = torch.randint(len(self.recent), (self.batch,), generator=self.generator)
        codes, crude = zip(*(self.recent[i] for i in chosen.tolist()), strict=True)
        return torch.stack(codes), torch.stack(crude), grid

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        tokenizer = self.prior.tokenizer
        codes_BL, crude_BLD, grid = self.pictures()
        fraction_B1 = torch.cos(
            torch.rand(len(codes_BL), 1, generator=self.generator) * math.pi / 2
        )
        masked_BL = torch.rand(codes_BL.shape, generator=self.generator) < fraction_B1
        masked_BL = masked_BL.to(codes_BL.device)
        shown_BL = flipped(codes_BL, self.prior.net.config.bits, self.flips, self.generator)
        heard_BLD = evidence(tokenizer.codebook_KD[codes_BL], crude_BLD, self.generator)
        z_BL = torch.where(masked_BL, MASK, shown_BL)
        logits_BLK = predicted(self.prior.net, tokenizer.codebook_KD, z_BL, heard_BLD, grid)
        loss = F.cross_entropy(logits_BLK[masked_BL], codes_BL[masked_BL])
        return loss, {"nll": loss.item()}


def predicted(
    net: nn.Module, codebook_KD: Tensor, z_BL: Tensor, evidence_BLD: Tensor, grid: Grid
) -> Tensor:
    """Logits (B, L, K) in float32, with gradients; see
    :meth:`aps_core.priors.convolutional.network.ConvolutionalPrior.logits_given`.
    """
    decided_BL = z_BL != MASK
    code_BLD = codebook_KD[z_BL.clamp(min=0)]
    bits_BLD = torch.where(decided_BL[..., None], code_BLD, evidence_BLD.tanh())
    with torch.autocast(z_BL.device.type, dtype=torch.bfloat16):
        logits_BLK: Tensor = net(bits_BLD, decided_BL, grid)
    return logits_BLK.float()


@torch.no_grad()
def validate(net: nn.Module, prior: ConvolutionalPrior, codes_BL: Tensor) -> dict[str, float]:
    """Cross-entropy of withheld pictures with all, 1/2 and 1/4 of the tokens masked, and with all
    masked but half of them heard with evidence of strength 0.5.
    """
    codebook_KD = prior.tokenizer.codebook_KD
    generator = Generator().manual_seed(0)
    order_BL = torch.rand(codes_BL.shape, generator=generator).to(codes_BL.device)
    code_BLD = codebook_KD[codes_BL]
    noise_BLD = torch.randn(code_BLD.shape, generator=generator).to(code_BLD)
    heard_BLD = 0.5 * code_BLD + 0.5**0.5 * noise_BLD
    side = round(codes_BL.shape[1] ** 0.5)

    def nll(masked_BL: Tensor, heard_BLD: Tensor, scored_BL: Tensor) -> float:
        parts = [
            F.cross_entropy(
                predicted(net, codebook_KD, torch.where(m, MASK, c), e, (side, side))[s],
                c[s],
                reduction="sum",
            )
            for c, m, e, s in zip(
                *(t.split(8) for t in (codes_BL, masked_BL, heard_BLD, scored_BL)), strict=True
            )
        ]
        return float(torch.stack(parts).sum() / scored_BL.sum())

    nothing_BLD = torch.zeros_like(heard_BLD)
    everything_BL = torch.ones_like(order_BL, dtype=torch.bool)
    half_BL, quarter_BL = order_BL < 0.5, order_BL < 0.25
    return {
        "nll_all": nll(everything_BL, nothing_BLD, everything_BL),
        "nll_half": nll(half_BL, nothing_BLD, half_BL),
        "nll_quarter": nll(quarter_BL, nothing_BLD, quarter_BL),
        "nll_heard": nll(everything_BL, heard_BLD.masked_fill(half_BL[..., None], 0.0), half_BL),
    }


def export(net: nn.Module, config: ConvolutionalConfig, out: Path) -> None:
    """Writes ``model.safetensors`` in half precision and ``config.json``."""
    halves = {key: value.half().contiguous() for key, value in net.state_dict().items()}
    save_file(halves, out / "model.safetensors")
    (out / "config.json").write_text(config.model_dump_json(indent=1) + "\n")


def drawing(args: argparse.Namespace, seed: int) -> Callable[[], Tensor]:
    """A function that draws the new 128-pixel crops of a step."""
    crops = partial(DocumentCrops.batch, count=max(1, args.batch // USES), size=128)
    return partial(next, stream(args.corpus / "tiles", seed, crops, args.workers))


def main() -> None:
    made = runs.parser(__doc__, 1200, 8, "128-pixel crops a step (128 on a GPU)")
    made.add_argument("--tokenizer", type=Path, required=True, help="its run folder")
    made.add_argument("--width", type=int, default=192)
    made.add_argument("--blocks", type=int, default=10)
    made.add_argument("--flips", type=float, default=0.1, help="largest share of flipped bits")
    add_workers(made)
    args = made.parse_args()

    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    out, schedule = runs.folder_and_schedule(args)
    tokenizer = load_magvit(args.tokenizer, device, fast_dtype(device))
    bits = tokenizer.codebook_KD.shape[1]
    config = ConvolutionalConfig(bits=bits, width=args.width, blocks=args.blocks)
    net = ConvolutionalNet(config).to(device)
    prior = ConvolutionalPrior(net, tokenizer)
    net.requires_grad_(True)
    seed = args.seed + steps_done(out)
    loss = ConvolutionalLoss(prior, drawing(args, seed), args.batch, args.flips, seed)
    sets = {
        name: tokenizer.encode(x[:HELD_OUT].to(device)) for name, x in held_out(args.corpus).items()
    }

    def validated(averaged: nn.Module) -> dict[str, float]:
        export(averaged, config, out)
        scores = {name: validate(averaged, prior, codes_BL) for name, codes_BL in sets.items()}
        return {f"{k}_{name}": v for name, values in scores.items() for k, v in values.items()}

    hidden = [p for name, p in net.blocks.named_parameters() if p.ndim == 2]
    optimizers = muon_and_adamw(net, hidden, args.rate, 0.05)
    train(net, loss, optimizers, out, schedule, validated, validate_every_minutes=10)


if __name__ == "__main__":
    main()
