r"""Stage 1 of the documents prior: its MAGVIT-v2 tokenizer, trained for as long as there is time.

    python -m training.documents.tokenizer --corpus CORPUS --out runs/documents-tokenizer
    python -m training.documents.tokenizer --corpus CORPUS --out runs/documents-tokenizer \
        --anneal 60

The first command trains at a constant rate and may be stopped at any second (SIGTERM, SIGINT or a
file ``OUT/STOP``) and continued by the same command. The second takes a copy of its state to
``OUT-annealed`` and lowers the rate to zero in the given minutes: weights to ship, while the first
run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from aps_core.evaluation.metrics import psnr
from aps_core.tokenizers.magvit2_net import Magvit2
from training.documents.crops import DocumentCrops, add_workers, stream
from training.tokenizer import parser, shape, train_tokenizer, validate

SHAPES = {
    "fine-8": shape(64, 4, 64, 1, 8, patch=2, attention=False),
    "fine-6": shape(64, 4, 64, 1, 6, patch=2, attention=False),
}
"""Bits a token of two pixels. After ten minutes each, 8 bits were 0.3 dB ahead on withheld fonts
and 0.4 on scans, and 0.9 dB behind on screens."""


def mixed(crops: DocumentCrops, batch: int, large_share: float) -> Tensor:
    """64-pixel crops (B, 3, 64, 64), or at times a quarter as many of 128 pixels."""
    if crops.rng.random() < large_share:
        return crops.batch(max(1, batch // 4), 128)
    return crops.batch(batch, 64)


def held_out(corpus: Path, side: int = 128) -> dict[str, Tensor]:
    """Crops (N, 3, ``side``, ``side``) of the validation split, in [-1, 1]: black on white pages,
    scans, and screens as they are.
    """
    pages = np.load(corpus / "tiles" / "validation-ink.npy", mmap_mode="r")
    scans = np.load(corpus / "tiles" / "validation-scan.npy", mmap_mode="r")
    screens = np.load(corpus / "tiles" / "validation-colour.npy", mmap_mode="r")
    middle = slice(256 - side // 2, 256 + side // 2)

    def grey(tiles: np.ndarray) -> Tensor:
        x = 1 - torch.from_numpy(np.array(tiles[:, middle, middle])).float() / 127.5
        return x[:, None].expand(-1, 3, -1, -1)

    colour = torch.from_numpy(np.array(screens[:, middle, middle])).permute(0, 3, 1, 2)
    return {"fonts": grey(pages), "scans": grey(scans), "screens": colour.float() / 127.5 - 1}


@torch.no_grad()
def scores(model: nn.Module, sets: dict[str, Tensor]) -> dict[str, float]:
    """PSNR of the round trip on each set of pictures; codes used and bit bias over all of them."""
    everything = validate(model, torch.cat(list(sets.values())))
    assert isinstance(model, Magvit2)
    result = {}
    for name, x_BCHW in sets.items():
        parts = []
        for x in x_BCHW.split(8):
            code = torch.where(model.encoder(x) > 0, 1.0, -1.0)
            parts.append(psnr(model.decoder(code).clamp(-1, 1), x))
        result[f"psnr_{name}"] = torch.cat(parts).mean().item()
    return {**result, "codes_used": everything["codes_used"], "bit_bias": everything["bit_bias"]}


def main() -> None:
    made = parser(__doc__, SHAPES, 1024)
    add_workers(made)
    args = made.parse_args()
    pictures = held_out(args.corpus)

    def draw(large_share: float, seed: int) -> Callable[[], Tensor]:
        crops = partial(mixed, batch=args.batch, large_share=large_share)
        return partial(next, stream(args.corpus / "tiles", seed, crops, args.workers))

    def scored(model: Magvit2, device: torch.device) -> dict[str, float]:
        return scores(model, {name: x.to(device) for name, x in pictures.items()})

    train_tokenizer(args, SHAPES[args.shape], draw, scored)


if __name__ == "__main__":
    main()
