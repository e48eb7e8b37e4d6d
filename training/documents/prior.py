r"""Stage 2 of the documents prior: an MMaDA transformer on the token grids of 128-pixel crops.

    python -m training.documents.prior --corpus CORPUS --out runs/documents-prior \
        --tokenizer runs/documents-tokenizer-annealed

Stops, continues and anneals like :mod:`training.documents.tokenizer`. Differences to the
photographs' prior: no captions, and a share of the visible bits is flipped, because APS shows the
prior anchors that may be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import LlamaForCausalLM

from aps_core.priors.embedded.image import fast_dtype
from aps_core.priors.mmada.network import MMaDAConfig, MMaDAPrior, load_mmada
from aps_core.tokenizers.magvit2 import load_magvit
from training import runs
from training.documents.crops import DocumentCrops, stream
from training.documents.tokenizer import held_out
from training.loop import device_and_threads, steps_done, train
from training.muon import muon_and_adamw
from training.prior import build, config_for, masked_nll, save, text_tokenizer, validate

HELD_OUT = 16
"""Pictures of each validation set."""


def flipped(codes_BL: Tensor, bits: int, largest: float, generator: torch.Generator) -> Tensor:
    """The codes with bits flipped at a rate that is uniform in [0, ``largest``] for each grid."""
    rate_B11 = largest * torch.rand(len(codes_BL), 1, 1, generator=generator)
    flip_BLb = torch.rand(*codes_BL.shape, bits, generator=generator) < rate_B11
    return codes_BL ^ (flip_BLb << torch.arange(bits)).sum(-1).to(codes_BL.device)


class DocumentsPriorLoss:
    """Draws crops, encodes, masks and disturbs them; masked cross-entropy."""

    def __init__(
        self, prior: MMaDAPrior, draw: Callable[[], Tensor], flips: float, seed: int
    ) -> None:
        """``draw``: a batch (B, 3, 128, 128) in [-1, 1]."""
        self.prior = prior
        self.draw = draw
        self.flips = flips
        self.bits = prior.tokenizer.codebook_KD.shape[1]
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        device = self.prior.tokenizer.codebook_KD.device
        codes_BL = self.prior.tokenizer.encode(self.draw().to(device))
        fraction_B1 = torch.cos(
            torch.rand(len(codes_BL), 1, generator=self.generator) * math.pi / 2
        )
        masked_BL = (torch.rand(codes_BL.shape, generator=self.generator) < fraction_B1).to(device)
        shown_BL = flipped(codes_BL, self.bits, self.flips, self.generator)
        loss, _ = masked_nll(self.prior, codes_BL, masked_BL, [""] * len(codes_BL), shown_BL)
        return loss, {"nll": loss.item()}


def export(model: LlamaForCausalLM, prior: MMaDAPrior, config: MMaDAConfig, out: Path) -> None:
    """Writes the checkpoint folder with plain tables; ``model`` keeps its shared ones."""
    plain = LlamaForCausalLM(config.llama())
    plain.load_state_dict(_folded(model))
    save(plain, config, prior.text_tokenizer, out)


def _folded(model: LlamaForCausalLM) -> dict[str, Tensor]:
    """The state dict without parametrizations."""
    tables = {
        name: module
        for name, module in model.named_modules()
        if parametrize.is_parametrized(module)
    }
    state = {k: v for k, v in model.state_dict().items() if ".parametrizations." not in k}
    for name, module in tables.items():
        assert isinstance(module.weight, Tensor)
        state[f"{name}.weight"] = module.weight.detach()
    return state


def take_layers(model: LlamaForCausalLM, other: LlamaForCausalLM) -> None:
    """Copies the layers of a trained prior of the same shape. Its token tables are left out, since
    the codes of another tokenizer mean other things; attention to near tokens carries over.
    """
    model.model.layers.load_state_dict(other.model.layers.state_dict())
    model.model.norm.load_state_dict(other.model.norm.state_dict())


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
        "--flips", type=float, default=0.1, help="largest share of visible bits flipped"
    )
    args = parser.parse_args()

    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    out, schedule = runs.folder_and_schedule(args)
    tokenizer = load_magvit(args.tokenizer, device, fast_dtype(device))
    text = text_tokenizer([])
    config = config_for(
        text.get_vocab_size(), tokenizer.codebook_KD.shape[1], args.width, args.layers
    )
    prior = build(config, tokenizer, text, device)
    if args.start and not steps_done(out):
        take_layers(prior.model, load_mmada(args.start, tokenizer, device, torch.float32).model)
    seed = args.seed + steps_done(out)
    draw = partial(DocumentCrops.batch, count=args.batch, size=128)
    batches = stream(args.corpus / "tiles", seed, draw, args.workers)
    loss = DocumentsPriorLoss(prior, lambda: next(batches), args.flips, seed)
    pictures = held_out(args.corpus).items()
    sets = {name: tokenizer.encode(x[:HELD_OUT].to(device)) for name, x in pictures}

    def validated(averaged: nn.Module) -> dict[str, float]:
        assert isinstance(averaged, LlamaForCausalLM)
        export(averaged, prior, config, out)
        scores = {name: validate(prior, averaged, codes_BL) for name, codes_BL in sets.items()}
        return {f"{k}_{name}": v for name, values in scores.items() for k, v in values.items()}

    hidden = [p for name, p in prior.model.named_parameters() if "_proj" in name]
    optimizers = muon_and_adamw(prior.model, hidden, args.rate, 0.05)
    train(prior.model, loss, optimizers, out, schedule, validated, validate_every_minutes=10)


if __name__ == "__main__":
    main()
