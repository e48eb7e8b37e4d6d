r"""Stage 2: trains the embedded image prior, an MMaDA transformer, on the tokenizer's token grids.

    python -m training.prior --corpus CORPUS --tokenizer runs/tokenizer-annealed --out runs/prior

Stops, continues and anneals like :mod:`training.tokenizer`. The loss is masked cross-entropy with
MMaDA's mask ratios cos(pi/2 u) on 128-pixel crops, which are encoded during training. A share of
the visible bits is flipped, because APS shows the prior anchors that may be wrong. Some batches are
captioned; a tenth of their captions is dropped for classifier-free guidance. The output folder has
the layout of a published MMaDA checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from aps_core.priors.mmada.network import MMaDAPrior, load_mmada
from aps_core.runtime.precision import fast_dtype
from aps_core.tokenizers.magvit2 import load_magvit
from aps_core.types import MASK
from training import corpus, runs
from training.loop import device_and_threads, mixed_precision, steps_done, train
from training.muon import muon_and_adamw
from training.prior_network import (
    build,
    config_for,
    export,
    take_layers,
    take_tables,
    text_tokenizer,
)

CAPTIONED_SHARE = 0.2
CAPTION_DROPPED = 0.1


class CaptionedCrops:
    """Draws crops with their captions; most batches have none."""

    def __init__(self, pictures: list[corpus.Picture], seed: int) -> None:
        plain = [p for p in pictures if p.group != "icon"]
        captioned = [p for p in pictures if p.caption]
        self.plain = corpus.CropSampler(plain, 128, seed, min_scale=0.75)
        self.captioned = corpus.CropSampler(captioned, 128, seed + 1, min_scale=0.75)
        self.random = self.plain.random

    def batch(self, count: int) -> tuple[Tensor, list[str]]:
        """Pictures (count, 3, 128, 128) in [-1, 1] and their captions, possibly empty."""
        captioned = self.random.random() < CAPTIONED_SHARE
        crops = [(self.captioned if captioned else self.plain).crop() for _ in range(count)]
        captions = [
            (caption or "") if captioned and self.random.random() > CAPTION_DROPPED else ""
            for _, caption in crops
        ]
        return torch.stack([x for x, _ in crops]), captions


def flipped(codes_BL: Tensor, bits: int, largest: float, generator: torch.Generator) -> Tensor:
    """The codes with bits flipped at a rate that is uniform in [0, ``largest``] for each grid. They
    are drawn on the generator's device.
    """
    on = generator.device
    rate_B11 = largest * torch.rand(len(codes_BL), 1, 1, generator=generator, device=on)
    drawn_BLb = torch.rand(*codes_BL.shape, bits, generator=generator, device=on)
    changed_BL = ((drawn_BLb < rate_B11) << torch.arange(bits, device=on)).sum(-1)
    return codes_BL ^ changed_BL.to(codes_BL.device)


class PriorLoss:
    """Draws crops, encodes, masks and disturbs them; masked cross-entropy."""

    def __init__(
        self,
        prior: MMaDAPrior,
        draw: Callable[[], tuple[Tensor, list[str]]],
        flips: float,
        seed: int,
    ) -> None:
        """``draw``: pictures (B, 3, 128, 128) in [-1, 1] and their captions."""
        self.prior = prior
        self.draw = draw
        self.flips = flips
        self.bits = prior.tokenizer.codebook_KD.shape[1]
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        device = self.prior.tokenizer.codebook_KD.device
        x_BCHW, captions = self.draw()
        codes_BL = self.prior.tokenizer.encode(x_BCHW.to(device))
        fraction_B1 = torch.cos(
            torch.rand(len(codes_BL), 1, generator=self.generator) * math.pi / 2
        )
        masked_BL = (torch.rand(codes_BL.shape, generator=self.generator) < fraction_B1).to(device)
        shown_BL = flipped(codes_BL, self.bits, self.flips, self.generator)
        loss, _ = masked_nll(self.prior, codes_BL, masked_BL, captions, shown_BL)
        return loss, {"nll": loss.item()}


def masked_nll(
    prior: MMaDAPrior,
    codes_BL: Tensor,
    masked_BL: Tensor,
    captions: list[str],
    shown_BL: Tensor | None = None,
) -> tuple[Tensor, int]:
    """Mean cross-entropy in nats over the masked tokens, and their number. Elsewhere the network
    sees ``shown_BL``, or the codes themselves if None."""
    layout = prior.layout
    z_BL = torch.where(masked_BL, MASK, codes_BL if shown_BL is None else shown_BL)
    rows = [prior.sequence(z[None], caption)[0] for z, caption in zip(z_BL, captions, strict=True)]
    longest = max(map(len, rows))
    ids_BS = torch.stack([F.pad(row, (longest - len(row), 0), value=layout.eos) for row in rows])
    attention = None
    if any(len(row) < longest for row in rows):
        attention = torch.stack(
            [torch.arange(longest, device=row.device) >= longest - len(row) for row in rows]
        ).long()
    with mixed_precision(ids_BS.device):
        hidden_BSD = prior.model.model(
            input_ids=ids_BS, attention_mask=attention, use_cache=False
        ).last_hidden_state
        image_ND = hidden_BSD[:, -(codes_BL.shape[1] + 1) : -1][masked_BL]
        logits_NK = image_ND @ prior.model.lm_head.weight[layout.image_offset :].T
    return F.cross_entropy(logits_NK.float(), codes_BL[masked_BL]), len(image_ND)


def validate(prior: MMaDAPrior, model: nn.Module, codes_BL: Tensor) -> dict[str, float]:
    """Cross-entropy on withheld photographs with all, 1/2 and 1/4 of the tokens masked."""
    averaged = MMaDAPrior.__new__(MMaDAPrior)
    averaged.__dict__.update(prior.__dict__)
    averaged.model = model
    order = torch.rand(codes_BL.shape, generator=torch.Generator().manual_seed(0)).to(
        codes_BL.device
    )
    scores = {}
    with torch.no_grad():
        for name, share in (("nll_all", 1.0), ("nll_half", 0.5), ("nll_quarter", 0.25)):
            parts = [
                masked_nll(averaged, c, o < share, [""] * len(c))
                for c, o in zip(codes_BL.split(8), order.split(8), strict=True)
            ]
            scores[name] = sum(float(loss) * n for loss, n in parts) / sum(n for _, n in parts)
    return scores


def main() -> None:
    parser = runs.parser(__doc__, 1200, 8, "token grids a step (128 on a GPU)")
    parser.add_argument(
        "--tokenizer", type=Path, required=True, help="folder with the trained tokenizer"
    )
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument(
        "--start", type=Path, help="folder of a prior of the same shape whose layers to start from"
    )
    parser.add_argument(
        "--tables",
        action="store_true",
        help="start from its token tables, too: the tokenizer was started from its tokenizer",
    )
    parser.add_argument(
        "--flips", type=float, default=0.1, help="largest share of visible bits flipped"
    )
    args = parser.parse_args()

    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    out, schedule = runs.folder_and_schedule(args)
    tokenizer = load_magvit(args.tokenizer, device, fast_dtype(device))
    pictures, withheld = corpus.load(args.corpus)
    text = text_tokenizer(sorted({p.caption for p in pictures if p.caption}))
    config = config_for(
        text.get_vocab_size(), tokenizer.codebook_KD.shape[1], args.width, args.layers
    )
    prior = build(config, tokenizer, text, device)
    if args.start and not steps_done(out):
        trained = load_mmada(args.start, tokenizer, device, torch.float32).model
        take_layers(prior.model, trained)
        if args.tables:
            take_tables(prior.model, trained)
    seed = args.seed + steps_done(out)
    draw = partial(CaptionedCrops(pictures, seed).batch, args.batch)
    loss = PriorLoss(prior, draw, args.flips, seed)
    held_out = torch.stack([corpus.square(p, 128) for p in withheld])
    codes_BL = tokenizer.encode(held_out.to(device))

    def validated(averaged: nn.Module) -> dict[str, float]:
        assert isinstance(averaged, LlamaForCausalLM)
        export(averaged, prior, config, out)
        return validate(prior, averaged, codes_BL)

    hidden = [p for name, p in prior.model.named_parameters() if "_proj" in name]
    optimizers = muon_and_adamw(prior.model, hidden, args.rate, 0.05)
    train(prior.model, loss, optimizers, out, schedule, validated, validate_every_minutes=10)


if __name__ == "__main__":
    main()
