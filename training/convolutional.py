"""The convolutional prior, a masked prior and a denoiser in one; here of photographs.

    python -m training.convolutional --corpus CORPUS --out runs/photographs
    python -m training.convolutional --corpus CORPUS --out runs/photographs --anneal 15

Stops, continues and anneals like :mod:`training.tokenizer`. The loss is the cross-entropy of the
undecided tokens of 128-pixel crops, with MMaDA's mask ratios cos(pi/2 u), and the error of the
expected picture. A share of the decided tokens' bits is flipped, because the sampler's anchors may
be wrong. Most crops are restorations under way (:mod:`training.restoration`): for these the only
input is the estimate. The answer is fitted to the measurement; the result is the next estimate, and
its error counts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from aps_core.priors.convolutional.network import (
    Answer,
    ConvolutionalConfig,
    ConvolutionalNet,
    load_convolutional,
)
from aps_core.sampling.views import TURNS, View
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import MASK
from training import corpus, runs
from training.convolutional_scores import expected, surprise, validate
from training.loop import device_and_threads, mixed_precision, steps_done, train
from training.muon import muon_and_adamw
from training.prior import flipped
from training.random_measurement import Kinds
from training.restoration import Restoration

RUNNING = 48
"""Restorations under way, from which steps draw."""
NOISY = 0.3
"""Share of rounds whose estimate is shifted at random, as it is for several samples."""
UNDER_WAY = 0.75
"""Share of crops that are restorations under way."""
GIVEN = 0.5
"""Share of the other crops of which an estimate is given."""

USUAL_ERROR = 0.01
"""Squared error of an estimate, which counts like one nat."""
USUAL_TOKEN_ERROR = 0.1
"""Squared error of an expected picture that counts like one nat, without an estimate."""
SMALLEST_ERROR = 1e-4
"""Squared error of an estimate below which it need not become better."""


def squared_error(x_BCHW: Tensor, truth_BCHW: Tensor) -> Tensor:
    """Mean of every picture (B,)."""
    return (x_BCHW - truth_BCHW).square().flatten(1).mean(1)


class ConvolutionalLoss:
    """Draws crops, encodes, masks and disturbs them; cross-entropy of the undecided tokens, and
    squared error of the expected or fitted picture, relative to the square root of that of the
    estimate that is given. Relative to the error itself, answers become cautious; relative to
    nothing, good estimates count little.
    """

    def __init__(
        self,
        net: ConvolutionalNet,
        tokenizer: PixelTokenizer,
        draw: Callable[[], Tensor],
        batch: int,
        flips: float,
        rounds: int,
        turned: bool,
        kinds: Kinds,
        seed: int,
    ) -> None:
        """``draw``: one picture (1, 3, H, W) in [-1, 1]. ``batch``: crops B of a step.
        ``flips``: largest share of flipped bits. ``rounds``: of a restoration. ``turned``: whether
        steps turn their crops. ``kinds``: of measurements.
        """
        self.net = net
        self.tokenizer = tokenizer
        self.draw = draw
        self.batch = batch
        self.flips = flips
        self.rounds = rounds
        self.turned = turned
        self.kinds = kinds
        self.generator = Generator().manual_seed(seed)
        self.running: list[Restoration] = []

    def restorations(self) -> list[Restoration]:
        """Those of this step. New ones take the place of finished ones."""
        self.running = [under_way for under_way in self.running if under_way.rounds < self.rounds]
        while len(self.running) < max(RUNNING, self.batch):
            x_CHW = self.draw().to(self.tokenizer.codebook_KD.device)[0]
            self.running.append(Restoration.of(x_CHW, self.generator, self.kinds))
        chosen = torch.randperm(len(self.running), generator=self.generator)[: self.batch]
        return [self.running[i] for i in chosen.tolist()]

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        chosen = self.restorations()
        turn = int(torch.randint(len(TURNS), (), generator=self.generator)) * self.turned
        seen = View(0, 0, *TURNS[turn])
        x_BCHW = seen.laid(torch.stack([each.x_CHW for each in chosen]))
        estimate_BCHW = seen.laid(torch.stack([each.estimate_CHW for each in chosen]))
        pulled_BCHW = seen.laid(torch.stack([each.pulled_CHW for each in chosen]))
        codes_BL = self.tokenizer.encode(x_BCHW)
        grid = (x_BCHW.shape[2], x_BCHW.shape[3])
        under_way = chosen[: round(UNDER_WAY * self.batch)]
        under_way_B = torch.arange(self.batch) < len(under_way)
        fraction_B = torch.cos(torch.rand(self.batch, generator=self.generator) * math.pi / 2)
        fraction_B[under_way_B] = 1.0
        given_B = under_way_B | (torch.rand(self.batch, generator=self.generator) < GIVEN)
        masked_BL = torch.rand(codes_BL.shape, generator=self.generator) < fraction_B[:, None]
        masked_BL, given_B = masked_BL.to(codes_BL.device), given_B.to(codes_BL.device)
        shown_BL = flipped(codes_BL, self.net.config.bits, self.flips, self.generator)
        z_BL = torch.where(masked_BL, MASK, shown_BL)
        with mixed_precision(z_BL.device):
            said = self.net.answer(z_BL, estimate_BCHW, pulled_BCHW, given_B, self.tokenizer, grid)
        continuous = self.net.config.continuous
        nats_BL = surprise(said, x_BCHW, given_B, self.tokenizer, continuous)
        nll = nats_BL[masked_BL].mean()
        x_bar_BCHW = expected(said, z_BL, given_B, self.tokenizer)
        fitted = self.advance(under_way, seen, said, x_bar_BCHW)
        x_bar_BCHW = torch.cat([seen.laid(fitted), x_bar_BCHW[len(under_way) :]])
        estimate_error_B = squared_error(estimate_BCHW, x_BCHW) + SMALLEST_ERROR
        usual_B = (USUAL_ERROR * estimate_error_B).sqrt().where(given_B, USUAL_TOKEN_ERROR)
        error = (squared_error(x_bar_BCHW, x_BCHW) / usual_B).mean()
        return nll + error, {"nll": nll.item(), "error": error.item()}

    def advance(
        self, under_way: list[Restoration], seen: View, said: Answer, x_bar_BCHW: Tensor
    ) -> Tensor:
        """A round of those whose only input is their estimate in a view; returns their
        fitted pictures, upright. The next estimate of some is shifted by some standard deviations
        at random.
        """
        fitted, grid = [], (x_bar_BCHW.shape[2], x_bar_BCHW.shape[3])
        variance_BL1 = seen.pixels_back(said.variance_BL.detach()[..., None], grid)
        weight_BL1 = seen.pixels_back(said.weight_BL[..., None], grid)
        precision_BL1 = weight_BL1 / variance_BL1
        x_bar_BCHW = seen.back(x_bar_BCHW)
        for i, each in enumerate(under_way):
            fitted_CHW = each.fitted(x_bar_BCHW[i], precision_BL1[i, :, 0])
            share = max(0.0, float(torch.rand((), generator=self.generator)) - 1 + NOISY) / NOISY
            deviation_L = variance_BL1[i, :, 0].sqrt()
            drawn_L = torch.randn(len(deviation_L), generator=self.generator).to(deviation_L)
            noise_L = share * deviation_L * drawn_L
            each.advance(fitted_CHW.detach(), noise_L.view(each.x_CHW.shape[1:]))
            fitted.append(fitted_CHW)
        return torch.stack(fitted)


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
    made.add_argument("--coarse-blocks", type=int, default=0)
    made.add_argument("--coarse-width", type=int, default=256)
    made.add_argument("--flips", type=float, default=0.1, help="largest share of flipped bits")
    made.add_argument("--rounds", type=int, default=4, help="of a restoration")
    made.add_argument("--start", type=Path, help="folder of a trained prior to start from")
    made.add_argument(
        "--new-head", action="store_true", help="of --start, take all but the outputs"
    )
    return made


def train_convolutional(
    args: argparse.Namespace,
    draw: Callable[[int], Callable[[], Tensor]],
    held_out: dict[str, Tensor],
    *,
    turned: bool,
    kinds: Kinds,
    continuous: bool,
) -> None:
    """Trains as ``args`` of :func:`parser` say. ``draw``: from a seed, a function that
    draws a crop (1, 3, 128, 128) in [-1, 1]. ``held_out``: named sets of them. ``turned``: whether
    the content may lie any way. ``kinds``: of measurements. ``continuous``: kind of network
    (:class:`~aps_core.priors.convolutional.network.ConvolutionalConfig`).
    """
    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    out, schedule = runs.folder_and_schedule(args)
    tokenizer = PixelTokenizer(device)
    bits = tokenizer.codebook_KD.shape[1]
    config = ConvolutionalConfig(
        bits=bits,
        width=args.width,
        blocks=args.blocks,
        coarse_blocks=args.coarse_blocks,
        coarse_width=args.coarse_width,
        continuous=continuous,
    )
    net = ConvolutionalNet(config).to(device)
    if args.start and not steps_done(out):
        trained = load_convolutional(args.start, tokenizer, device, torch.float32).net.state_dict()
        if args.new_head:
            new = {f"head.{key}": value for key, value in net.head.state_dict().items()}
            trained = {**trained, **new}
        # what the trained one lacks changes nothing at first
        net.load_state_dict({**net.state_dict(), **trained})
    seed = args.seed + steps_done(out)
    loss = ConvolutionalLoss(
        net, tokenizer, draw(seed), args.batch, args.flips, args.rounds, turned, kinds, seed
    )

    def validated(averaged: nn.Module) -> dict[str, float]:
        export(averaged, out, config)
        return {
            f"{score}_{name}": value
            for name, x_BCHW in held_out.items()
            for score, value in validate(
                averaged, tokenizer, x_BCHW.to(device), args.rounds, kinds
            ).items()
        }

    inside = ("blocks.", "coarse.")
    hidden = [p for name, p in net.named_parameters() if name.startswith(inside) and p.ndim == 2]
    optimizers = muon_and_adamw(net, hidden, args.rate, 0.05)
    train(
        net,
        loss,
        optimizers,
        out,
        schedule,
        validated,
        # while the rate falls, weights of many steps ago are worse than the present ones
        ema_decay=0.99 if args.anneal else 0.999,
        validate_every_minutes=10,
        export=partial(export, config=config),
    )


def main() -> None:
    args = parser(__doc__).parse_args()
    training, validation = corpus.load(args.corpus, icons=False)
    train_convolutional(
        args,
        lambda seed: partial(corpus.CropSampler(training, 128, seed).batch, 1),
        {"photographs": torch.stack([corpus.square(p, 128) for p in validation[:16]])},
        turned=True,
        kinds=Kinds(),
        continuous=True,
    )


if __name__ == "__main__":
    main()
