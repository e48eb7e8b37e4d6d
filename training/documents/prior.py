"""The documents prior; see :mod:`training.convolutional`.

python -m training.documents.prior --corpus CORPUS --out runs/documents
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from aps_core.priors.embedded.documents import EmbeddedDocumentsPrior
from training.convolutional import parser, train_convolutional
from training.documents.crops import DocumentCrops
from training.measurement_kinds import Kinds
from training.stream import Draw

KINDS = Kinds.of(EmbeddedDocumentsPrior, factors=(1, 1, 1, 1, 1, 1, 2, 4, 4))

HELD_OUT = 16
"""Pictures of each validation set."""


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


def main() -> None:
    args = parser(__doc__).parse_args()

    def sampler(seed: int) -> Draw:
        return partial(DocumentCrops.of(args.corpus / "tiles", seed).batch, size=128)

    sets = {name: x_BCHW[:HELD_OUT] for name, x_BCHW in held_out(args.corpus).items()}
    train_convolutional(args, sampler, sets, turned=False, kinds=KINDS, continuous=False)


if __name__ == "__main__":
    main()
