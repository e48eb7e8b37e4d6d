"""How often a sharp picture is given a kernel.

    python -m research.free_kernels.sharp --withheld CORPUS
    python -m research.free_kernels.sharp --withheld CORPUS --set photos

Searches for a kernel of any shape in pictures that are not blurred, with noise 0 and 0.02: those
that training withholds, or without ``--withheld`` those of ``examples``. Prints a line for every
picture: the kernel's width, whether the picture supports it, and whether the product uses it.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress

import torch
from torch import Tensor

from aps_core.errors import NothingToRestore
from aps_core.identify.blind.kernel import deviation
from aps_core.identify.blind.kernel_search import KernelEstimate, kernel_of
from aps_core.identify.diagnosis import examine
from aps_core.identify.kinds.blind_blur import UNGUIDED, BlindBlur, shape_is_searched
from aps_core.identify.search import Search
from aps_core.imaging import images, noise
from aps_core.operators.base import OperatorSpec
from aps_core.operators.gaussian_blur import GaussianBlur
from research.common.arguments import parser_of
from research.free_kernels.compare import picture_arguments, pictures

NOISE = (0.0, 0.02)


def estimate(x_CHW: Tensor, sigma: float) -> tuple[KernelEstimate, bool]:
    """The kernel with the most evidence, compared with the blur of a known kind, and whether it is
    used.
    """
    y_CHW = noise.add_noise(x_CHW, sigma, torch.Generator().manual_seed(0))
    upload = images.Picture(images.to_pil(y_CHW))
    known: OperatorSpec = GaussianBlur(sigma=UNGUIDED)
    with suppress(NothingToRestore):
        known = BlindBlur().find(Search(upload)).operator
    found = kernel_of(upload.image, known)
    return found, found.support > 0 and shape_is_searched(examine(upload))


def main() -> None:
    parser = parser_of(__doc__)
    picture_arguments(parser)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cases = [(name, x, sigma) for name, x in pictures(asked).items() for sigma in NOISE]
    random.Random(0).shuffle(cases)  # the first ones are a sample of all
    start, used = time.monotonic(), []
    for name, x_CHW, sigma in cases:
        if time.monotonic() - start > asked.seconds:
            break
        found, given = estimate(x_CHW, sigma)
        used.append(given)
        width = f"width {deviation(found.kernel_KK):.2f}"
        print(name, sigma, width, f"supported {found.support > 0}, used {given}", flush=True)
    print(f"{sum(used)} of {len(used)} are given a kernel")


if __name__ == "__main__":
    main()
