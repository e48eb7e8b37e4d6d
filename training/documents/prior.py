r"""Stage 2 of the documents prior: an MMaDA transformer on the token grids of 128-pixel crops.

    python -m training.documents.prior --corpus CORPUS --out runs/documents-prior \
        --tokenizer runs/documents-tokenizer-annealed

As :mod:`training.prior`, without captions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from torch import Tensor

from training.documents.crops import DocumentCrops, add_workers, stream
from training.documents.tokenizer import held_out
from training.prior import parser, train_prior

HELD_OUT = 16
"""Pictures of each validation set."""


def drawing(args: argparse.Namespace, seed: int) -> Callable[[], tuple[Tensor, list[str]]]:
    """A function that draws a batch of crops, with empty captions."""
    crops = partial(DocumentCrops.batch, count=args.batch, size=128)
    batches = stream(args.corpus / "tiles", seed, crops, args.workers)
    return lambda: (next(batches), [""] * args.batch)


def main() -> None:
    made = parser(__doc__)
    add_workers(made)
    args = made.parse_args()
    sets = {name: x[:HELD_OUT] for name, x in held_out(args.corpus).items()}
    train_prior(args, [], partial(drawing, args), sets)


if __name__ == "__main__":
    main()
