"""The convolutional prior, a masked prior and a denoiser in one; here of photographs.

    python -m training.convolutional --corpus CORPUS --out runs/photographs
    python -m training.convolutional --corpus CORPUS --out runs/photographs --anneal 15

Stops, continues and anneals like :mod:`training.tokenizer`. The loss is the cross-entropy of the
undecided tokens of 128-pixel crops, with MMaDA's mask ratios cos(pi/2 u), and the error of the
expected picture. A share of the decided tokens' bits is flipped, because the sampler's anchors may
be wrong. Most crops are restorations under way (:mod:`training.crude`): of these the network is
told the estimate and nothing else. Its answer is fitted to the measurement; the result is the next
estimate, and its error counts.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from aps_core.evaluation.metrics import psnr
from aps_core.priors.convolutional.network import (
    Answer,
    ConvolutionalConfig,
    ConvolutionalNet,
    load_convolutional,
)
from aps_core.tokenizers.pixels import PixelTokenizer, brightness, of_codes
from aps_core.types import MASK
from training import corpus, runs
from training.crude import ROUNDS, Restoration, deviation
from training.loop import device_and_threads, mixed_precision, steps_done, train
from training.muon import muon_and_adamw
from training.prior import flipped

RUNNING = 48
"""Restorations under way, from which steps draw."""
NOISY = 0.3
"""Share of rounds whose estimate is shifted at random, as it is for several samples."""
UNDER_WAY = 0.75
"""Share of crops that are restorations under way."""
TOLD = 0.5
"""Share of the other crops of which an estimate is told."""

USUAL_ERROR = 0.01
"""Squared error of an estimate, which counts like one nat."""
UNTOLD_ERROR = 0.1
"""Squared error of an expected picture that counts like one nat, if nothing is told."""
SMALLEST_ERROR = 1e-4
"""Squared error of an estimate below which it need not become better."""

CASES = {
    "all": (False, 1.0),
    "half": (False, 0.5),
    "quarter": (False, 0.25),
    "told_all": (True, 1.0),
    "told_half": (True, 0.5),
}
"""Of validation: whether the prior is told the first estimates, and the share of masked tokens.
What ``told_half`` gains on ``told_all`` is what decided neighbours say beyond a measurement.
"""


def squared_error(x_BCHW: Tensor, truth_BCHW: Tensor) -> Tensor:
    """Mean of every picture (B,)."""
    return (x_BCHW - truth_BCHW).square().flatten(1).mean(1)


class ConvolutionalLoss:
    """Draws crops, encodes, masks and disturbs them; cross-entropy of the undecided tokens, and
    squared error of the expected or fitted picture, relative to the square root of that of the
    estimate that is told. Relative to the error itself, answers become cautious; relative to
    nothing, good estimates count little.
    """

    def __init__(
        self,
        net: ConvolutionalNet,
        tokenizer: PixelTokenizer,
        draw: Callable[[], Tensor],
        batch: int,
        flips: float,
        seed: int,
    ) -> None:
        """``draw``: one picture (1, 3, H, W) in [-1, 1]. ``batch``: crops B of a step.
        ``flips``: largest share of flipped bits.
        """
        self.net = net
        self.tokenizer = tokenizer
        self.draw = draw
        self.batch = batch
        self.flips = flips
        self.generator = Generator().manual_seed(seed)
        self.running: list[Restoration] = []

    def restorations(self) -> list[Restoration]:
        """Those of this step. New ones take the place of finished ones."""
        self.running = [under_way for under_way in self.running if under_way.rounds < ROUNDS]
        while len(self.running) < max(RUNNING, self.batch):
            x_CHW = self.draw().to(self.tokenizer.codebook_KD.device)[0]
            self.running.append(Restoration.of(x_CHW, self.tokenizer, self.generator))
        chosen = torch.randperm(len(self.running), generator=self.generator)[: self.batch]
        return [self.running[i] for i in chosen.tolist()]

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        chosen = self.restorations()
        x_BCHW = torch.stack([each.x_CHW for each in chosen])
        codes_BL = torch.stack([each.codes_L for each in chosen])
        crude_BCHW = torch.stack([each.crude_CHW for each in chosen])
        pulled_BCHW = torch.stack([each.pulled_CHW for each in chosen])
        grid = (x_BCHW.shape[2], x_BCHW.shape[3])
        under_way = chosen[: round(UNDER_WAY * self.batch)]
        under_way_B = torch.arange(self.batch) < len(under_way)
        fraction_B = torch.cos(torch.rand(self.batch, generator=self.generator) * math.pi / 2)
        fraction_B[under_way_B] = 1.0
        told_B = under_way_B | (torch.rand(self.batch, generator=self.generator) < TOLD)
        masked_BL = torch.rand(codes_BL.shape, generator=self.generator) < fraction_B[:, None]
        masked_BL, told_B = masked_BL.to(codes_BL.device), told_B.to(codes_BL.device)
        shown_BL = flipped(codes_BL, self.net.config.bits, self.flips, self.generator)
        z_BL = torch.where(masked_BL, MASK, shown_BL)
        with mixed_precision(z_BL.device):
            said = self.net.answer(z_BL, crude_BCHW, pulled_BCHW, told_B, self.tokenizer, grid)
        nll = surprise(said, codes_BL, told_B)[masked_BL].mean()
        x_bar_BCHW = expected(said, z_BL, told_B, self.tokenizer)
        fitted = self.advance(under_way, said, x_bar_BCHW)
        x_bar_BCHW = torch.cat([fitted, x_bar_BCHW[len(under_way) :]])
        told_error_B = squared_error(crude_BCHW, x_BCHW) + SMALLEST_ERROR
        usual_B = (USUAL_ERROR * told_error_B).sqrt().where(told_B, UNTOLD_ERROR)
        error = (squared_error(x_bar_BCHW, x_BCHW) / usual_B).mean()
        return nll + error, {"nll": nll.item(), "error": error.item()}

    def advance(self, under_way: list[Restoration], said: Answer, x_bar_BCHW: Tensor) -> Tensor:
        """A round of those that are told their estimate and nothing else; returns their fitted
        pictures. The next estimate of some is shifted by some standard deviations at random.
        """
        levels_Y, fitted = self.tokenizer.levels_Y, []
        for i, each in enumerate(under_way):
            p_LY = said.y_BLY[i].detach().softmax(-1)
            fitted_CHW = each.fitted(x_bar_BCHW[i], p_LY, said.weight_BL[i], levels_Y)
            share = max(0.0, float(torch.rand((), generator=self.generator)) - 1 + NOISY) / NOISY
            drawn_L = torch.randn(len(p_LY), generator=self.generator).to(p_LY)
            noise_L = share * deviation(p_LY, levels_Y) * drawn_L
            each.advance(fitted_CHW.detach(), noise_L.view(each.x_CHW.shape[1:]))
            fitted.append(fitted_CHW)
        return torch.stack(fitted)


def surprise(said: Answer, codes_BL: Tensor, told_B: Tensor) -> Tensor:
    """Nats (B, L) at true tokens; if an estimate is told, at their brightness alone, as their
    colours are then not predicted.
    """
    level_BL, colour_BL = codes_BL // 4, codes_BL % 4
    brightness_BL = F.cross_entropy(said.y_BLY.mT, level_BL, reduction="none")
    return (
        brightness_BL
        + F.cross_entropy(said.colour_BL4.mT, colour_BL, reduction="none") * ~told_B[:, None]
    )


def expected(said: Answer, z_BL: Tensor, told_B: Tensor, tokenizer: PixelTokenizer) -> Tensor:
    """Expected pictures, of decided and of predicted tokens (Eq. 7). The colours are those of the
    tokens, or the corrected ones of an estimate.
    """
    grid = (said.colours_BCHW.shape[2], said.colours_BCHW.shape[3])
    codebook_KD = tokenizer.codebook_KD
    mean_BLD = of_codes(said.y_BLY, said.colour_BL4).softmax(-1) @ codebook_KD
    e_BLD = torch.where((z_BL == MASK)[..., None], mean_BLD, codebook_KD[z_BL.clamp(min=0)])
    x_BCHW = tokenizer.decode(e_BLD, grid)
    told_BCHW = brightness(x_BCHW)[:, None] + said.colours_BCHW
    return told_BCHW.where(told_B[:, None, None, None], x_BCHW)


def answer(
    net: ConvolutionalNet,
    restoration: Restoration,
    z_BL: Tensor,
    told_B: Tensor,
    tokenizer: PixelTokenizer,
) -> Answer:
    """The network's, for one restoration."""
    crude_BCHW, pulled_BCHW = restoration.crude_CHW[None], restoration.pulled_CHW[None]
    grid = (crude_BCHW.shape[2], crude_BCHW.shape[3])
    return net.answer(z_BL, crude_BCHW, pulled_BCHW, told_B, tokenizer, grid)


@torch.no_grad()
def validate(net: nn.Module, tokenizer: PixelTokenizer, x_BCHW: Tensor) -> dict[str, float]:
    """Scores on withheld pictures: cross-entropy of the undecided tokens, with a share of them
    decided, and told nothing or a first estimate; PSNR of the tokens, of first estimates, and after
    a restoration.
    """
    assert isinstance(net, ConvolutionalNet)
    generator = Generator().manual_seed(0)
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for x in x_BCHW.split(1):
        grid = (x.shape[2], x.shape[3])
        restoration = Restoration.of(x[0], tokenizer, generator)
        codes_BL = restoration.codes_L[None]
        order_BL = torch.rand(codes_BL.shape, generator=generator).to(codes_BL.device)
        for name, (told, share) in CASES.items():
            masked_BL = order_BL < share
            z_BL = torch.where(masked_BL, MASK, codes_BL)
            told_B = torch.tensor([told], device=x.device)
            said = answer(net, restoration, z_BL, told_B, tokenizer)
            nats_BL = surprise(said, codes_BL, told_B)
            parts[f"nll_{name}"].append(nats_BL[masked_BL])
        tokens_BCHW = tokenizer.decode(tokenizer.codebook_KD[codes_BL], grid)
        parts["psnr_tokens"].append(psnr(tokens_BCHW.clamp(-1, 1), x))
        parts["psnr_first"].append(psnr(restoration.crude_CHW[None], x))
        while restoration.rounds < ROUNDS:
            z_BL, told_B = torch.full_like(codes_BL, MASK), torch.ones_like(told_B)
            said = answer(net, restoration, z_BL, told_B, tokenizer)
            p_LY, x_bar_BCHW = said.y_BLY[0].softmax(-1), expected(said, z_BL, told_B, tokenizer)
            weight_L, levels_Y = said.weight_BL[0], tokenizer.levels_Y
            fitted_CHW = restoration.fitted(x_bar_BCHW[0], p_LY, weight_L, levels_Y)
            restoration.advance(fitted_CHW, torch.zeros_like(fitted_CHW[0]))
        parts["psnr_restored"].append(psnr(restoration.crude_CHW[None], x))
    return {name: torch.cat(values).mean().item() for name, values in parts.items()}


def export(net: nn.Module, out: Path, config: ConvolutionalConfig) -> None:
    """Writes ``model.safetensors`` in half precision and ``config.json``."""
    halves = {key: value.half().contiguous() for key, value in net.state_dict().items()}
    save_file(halves, out / "model.safetensors")
    (out / "config.json").write_text(config.model_dump_json(indent=1) + "\n")


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of this stage, for photographs and documents."""
    made = runs.parser(description, 1200, 4, "128-pixel crops a step (128 on a GPU)")
    made.add_argument("--width", type=int, default=192)
    made.add_argument("--blocks", type=int, default=10)
    made.add_argument("--flips", type=float, default=0.1, help="largest share of flipped bits")
    made.add_argument("--start", type=Path, help="folder of a trained prior to start from")
    return made


def train_convolutional(
    args: argparse.Namespace,
    draw: Callable[[int], Callable[[], Tensor]],
    held_out: dict[str, Tensor],
) -> None:
    """Trains as ``args`` of :func:`parser` say. ``draw``: from a seed, a function that
    draws a crop (1, 3, 128, 128) in [-1, 1]. ``held_out``: named sets of them.
    """
    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    out, schedule = runs.folder_and_schedule(args)
    tokenizer = PixelTokenizer(device)
    bits = tokenizer.codebook_KD.shape[1]
    config = ConvolutionalConfig(bits=bits, width=args.width, blocks=args.blocks)
    net = ConvolutionalNet(config).to(device)
    if args.start and not steps_done(out):
        trained = load_convolutional(args.start, tokenizer, device, torch.float32)
        net.load_state_dict(trained.net.state_dict())
    seed = args.seed + steps_done(out)
    loss = ConvolutionalLoss(net, tokenizer, draw(seed), args.batch, args.flips, seed)

    def validated(averaged: nn.Module) -> dict[str, float]:
        export(averaged, out, config)
        return {
            f"{score}_{name}": value
            for name, x_BCHW in held_out.items()
            for score, value in validate(averaged, tokenizer, x_BCHW.to(device)).items()
        }

    hidden = [p for p in net.blocks.parameters() if p.ndim == 2]
    optimizers = muon_and_adamw(net, hidden, args.rate, 0.05)
    train(
        net,
        loss,
        optimizers,
        out,
        schedule,
        validated,
        validate_every_minutes=10,
        export=partial(export, config=config),
    )


def main() -> None:
    args = parser(__doc__).parse_args()
    training, validation = corpus.load(args.corpus)
    train_convolutional(
        args,
        lambda seed: partial(corpus.CropSampler(training, 128, seed).batch, 1),
        {"photographs": torch.stack([corpus.square(p, 128) for p in validation[:16]])},
    )


if __name__ == "__main__":
    main()
