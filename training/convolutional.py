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

from aps_core.checkpoints.metadata import read_config
from aps_core.priors.convolutional.network import (
    Answer,
    ConvolutionalConfig,
    ConvolutionalNet,
    load_convolutional,
)
from aps_core.priors.embedded.photographs import EmbeddedPhotographsPrior
from aps_core.sampling.views import TURNS, View
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import MASK
from training import corpus, runs
from training.convolutional_scores import expected, squared_error, surprise, validate
from training.loop import Values, device_and_threads, mixed_precision, steps_done, train
from training.measurement_kinds import Kinds
from training.muon import muon_and_adamw
from training.prior import flipped
from training.restoration import Restorations
from training.stream import Draw, add_workers, stream
from training.transfer import moved

POOL = 4
"""Sets of restorations under way for every factor of reduction, from which steps draw."""
NOISY = 0.3
"""Share of rounds whose estimate is shifted at random, as it is for several samples."""
WITH_TOKENS = 0.25
"""Share of crops of which tokens are decided."""
GIVEN = 0.5
"""Share of these of which an estimate is given as well."""

SHAPE = ("width", "blocks", "coarse_width", "coarse_blocks")
"""Fields of the network's shape that may be chosen."""

USUAL_ERROR = 0.01
"""Squared error of an estimate, which counts like one nat."""
USUAL_TOKEN_ERROR = 0.1
"""Squared error of an expected picture that counts like one nat, without an estimate."""
SMALLEST_ERROR = 1e-4
"""Squared error of an estimate below which it need not become better."""


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
        draw: Draw,
        batch: int,
        flips: float,
        rounds: int,
        turned: bool,
        kinds: Kinds,
        seed: int,
    ) -> None:
        """``draw``: pictures of any size. ``batch``: about how many crops a step has. ``flips``:
        largest share of flipped bits. ``rounds``: of a restoration. ``turned``: whether steps turn
        their crops. ``kinds``: of measurements.
        """
        self.net = net
        self.tokenizer = tokenizer
        self.draw = draw
        self.flips = flips
        self.rounds = rounds
        self.turned = turned
        self.kinds = kinds
        self.generator = Generator().manual_seed(seed)
        self.device = tokenizer.codebook_KD.device
        # the device draws faster, where it draws a number for every pixel
        self.of_pixels = Generator(self.device).manual_seed(seed)
        self.counts = kinds.counts(round((1 - WITH_TOKENS) * batch))
        self.pool: dict[int, list[Restorations]] = {factor: [] for factor in self.counts}

    def restorations(self) -> list[Restorations]:
        """Those of this step, for every factor. New ones take the place of finished ones."""
        chosen = []
        for factor, pool in self.pool.items():
            pool[:] = [under_way for under_way in pool if under_way.rounds < self.rounds]
            while len(pool) < POOL:
                x_BCHW = moved(self.draw(self.counts[factor]), self.device)
                pool.append(Restorations.of(x_BCHW, factor, self.generator, self.kinds))
            chosen.append(pool[int(torch.randint(POOL, (), generator=self.generator))])
        return chosen

    def __call__(self, share: float) -> tuple[Tensor, Values]:
        chosen = self.restorations()
        turn = int(torch.randint(len(TURNS), (), generator=self.generator)) * self.turned
        seen = View(0, 0, *TURNS[turn])
        under_way = sum(len(each.x_BCHW) for each in chosen)
        with_tokens = round(under_way * WITH_TOKENS / (1 - WITH_TOKENS))
        drawn = torch.randperm(under_way, generator=self.generator)[:with_tokens]
        rows = torch.cat([torch.arange(under_way), drawn]).to(self.device)
        x_BCHW, estimate_BCHW, pulled_BCHW = (
            seen.apply(torch.cat(pictures))[rows]
            for pictures in (
                [each.x_BCHW for each in chosen],
                [each.estimate_BCHW for each in chosen],
                [each.pulled_BCHW for each in chosen],
            )
        )
        codes_BL = self.tokenizer.encode(x_BCHW)
        grid = (x_BCHW.shape[2], x_BCHW.shape[3])
        masked_bL = self._masked(codes_BL[under_way:])
        shown_bL = flipped(
            codes_BL[under_way:], self.net.config.bits, self.flips, self.of_pixels
        ).where(~masked_bL, MASK)
        z_BL = torch.cat([torch.full_like(codes_BL[:under_way], MASK), shown_bL])
        given_B = torch.rand(len(rows), generator=self.generator) < GIVEN
        given_B[:under_way] = True
        alone = (~given_B).nonzero()[:, 0].to(self.device)
        given_B = given_B.to(self.device)
        with mixed_precision(z_BL.device):
            said = self.net.answer(z_BL, estimate_BCHW, pulled_BCHW, given_B, self.tokenizer, grid)
        continuous = self.net.config.continuous
        nats_BL = surprise(said, x_BCHW, given_B, self.tokenizer, continuous)
        undecided_BL = z_BL == MASK
        nll = (nats_BL * undecided_BL).sum() / undecided_BL.sum()
        x_bar_BCHW = expected(said, z_BL, alone, self.tokenizer)
        fitted = self.advance(chosen, seen, said, x_bar_BCHW)
        x_bar_BCHW = torch.cat([seen.apply(fitted), x_bar_BCHW[under_way:]])
        estimate_error_B = squared_error(estimate_BCHW, x_BCHW) + SMALLEST_ERROR
        usual_B = (USUAL_ERROR * estimate_error_B).sqrt().where(given_B, USUAL_TOKEN_ERROR)
        error = (squared_error(x_bar_BCHW, x_BCHW) / usual_B).mean()
        return nll + error, {"nll": nll.detach(), "error": error.detach()}

    def _masked(self, codes_BL: Tensor) -> Tensor:
        """Whether tokens are undecided, with MMaDA's ratios."""
        drawn_B1 = torch.rand(len(codes_BL), 1, generator=self.of_pixels, device=self.device)
        fraction_B1 = torch.cos(drawn_B1 * math.pi / 2)
        drawn_BL = torch.rand(codes_BL.shape, generator=self.of_pixels, device=self.device)
        return drawn_BL < fraction_B1

    def advance(
        self, chosen: list[Restorations], seen: View, said: Answer, x_bar_BCHW: Tensor
    ) -> Tensor:
        """A round of those under way, of which the first answers are in a view; returns their
        fitted pictures, upright. The next estimate of some is shifted by some standard deviations
        at random.
        """
        grid = (x_bar_BCHW.shape[2], x_bar_BCHW.shape[3])
        variance_BL = seen.undo_pixels(said.variance_BL.detach()[..., None], grid)[..., 0]
        weight_BL = seen.undo_pixels(said.weight_BL[..., None], grid)[..., 0]
        x_bar_BCHW = seen.undo(x_bar_BCHW)
        all_fitted, start = [], 0
        for each in chosen:
            those = slice(start, start + len(each.x_BCHW))
            start = those.stop
            fitted_BCHW = each.fitted(x_bar_BCHW[those], weight_BL[those] / variance_BL[those])
            drawn_B11 = torch.rand(len(each.x_BCHW), 1, 1, generator=self.generator)
            share_B11 = (drawn_B11 - 1 + NOISY).clamp(min=0) / NOISY
            deviation_BHW = variance_BL[those].sqrt().unflatten(1, each.x_BCHW.shape[2:])
            noise_BHW = (
                share_B11.to(deviation_BHW) * deviation_BHW * torch.randn_like(deviation_BHW)
            )
            each.advance(fitted_BCHW.detach(), noise_BHW)
            all_fitted.append(fitted_BCHW)
        return torch.cat(all_fitted)


def export(net: nn.Module, out: Path, config: ConvolutionalConfig) -> None:
    """Writes ``model.safetensors`` in half precision and ``config.json``."""
    halves = {key: value.half().contiguous() for key, value in net.state_dict().items()}
    save_file(halves, out / "model.safetensors")
    (out / "config.json").write_text(config.model_dump_json(indent=1) + "\n")


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of this stage, for photographs and documents."""
    made = runs.parser(description, 1200, 4, "128-pixel crops a step (192 on a GPU)")
    for name in SHAPE:
        made.add_argument(f"--{name.replace('_', '-')}", type=int, help="default: of --start")
    made.add_argument("--flips", type=float, default=0.1, help="largest share of flipped bits")
    made.add_argument("--rounds", type=int, default=4, help="of a restoration")
    made.add_argument("--start", type=Path, help="folder of a trained prior to start from")
    made.add_argument(
        "--new-head", action="store_true", help="of --start, take all but the outputs"
    )
    add_workers(made)
    return made


def shape(args: argparse.Namespace, bits: int) -> ConvolutionalConfig:
    """The network's: that of the run so far, or of the prior to start from, unless asked for."""
    asked = {name: getattr(args, name) for name in SHAPE if getattr(args, name) is not None}
    for folder in filter(None, (args.out, args.start)):
        if (folder / "config.json").exists():
            return read_config(folder, ConvolutionalConfig).model_copy(update=asked)
    return ConvolutionalConfig(bits=bits, **asked)


def train_convolutional(
    args: argparse.Namespace,
    sampler: Callable[[int], Draw],
    held_out: dict[str, Tensor],
    *,
    turned: bool,
    kinds: Kinds,
    continuous: bool,
) -> None:
    """Trains as ``args`` of :func:`parser` say. ``sampler``: from a seed, a function
    that draws crops of 128 pixels. ``held_out``: named sets of them. ``turned``: whether
    the content may lie any way. ``kinds``: of measurements. ``continuous``: kind of network
    (:class:`~aps_core.priors.convolutional.network.ConvolutionalConfig`).
    """
    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    out, schedule = runs.folder_and_schedule(args)
    tokenizer = PixelTokenizer(device)
    config = shape(args, tokenizer.codebook_KD.shape[1]).model_copy(
        update={"continuous": continuous}
    )
    (out / "config.json").write_text(config.model_dump_json(indent=1) + "\n")
    net = ConvolutionalNet(config).to(device)
    if args.start and not steps_done(out):
        trained = load_convolutional(args.start, tokenizer, device, torch.float32).net.state_dict()
        if args.new_head:
            head = {f"head.{key}": value for key, value in net.head.state_dict().items()}
            trained = {**trained, **head}
        # what the trained one lacks changes nothing at first
        new = {key: value for key, value in net.state_dict().items() if key not in trained}
        nothing = {key: torch.zeros_like(value) for key, value in new.items() if ".narrow." in key}
        net.load_state_dict({**new, **nothing, **trained})
    seed = args.seed + steps_done(out)
    draw = stream(sampler, seed, args.workers)
    loss = ConvolutionalLoss(
        net, tokenizer, draw, args.batch, args.flips, args.rounds, turned, kinds, seed
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
        lambda seed: corpus.CropSampler(training, 128, seed).batch,
        {"photographs": torch.stack([corpus.square(p, 128) for p in validation[:16]])},
        turned=True,
        kinds=Kinds.of(EmbeddedPhotographsPrior, factors=(1, 1, 1, 1, 2, 4)),
        continuous=True,
    )


if __name__ == "__main__":
    main()
