"""Views: the picture is moved, turned or mirrored before the prior sees it, differently each round.

A network's errors depend on how a picture lies on its squares of pixels, and on its orientation. If
rounds differ in these, their errors average out, at no cost.

Shapes: M pixels of a transformed picture of h rows and w columns, N numbers of a pixel; see
:mod:`aps_core.types` for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aps_core._lazy import lazy_import
from aps_core.types import Denoised, DenoisingPrior, Grid

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


class View(NamedTuple):
    """Transposed, then mirrored, then moved."""

    down: int = 0
    """Pixels by which it is moved."""
    right: int = 0
    transposed: bool = False
    mirrored: tuple[int, ...] = ()
    """Dimensions: -2 top to bottom, -1 left to right."""

    def apply(self, x_BCHW: Tensor) -> Tensor:
        """Pictures as the prior sees them (B, C, h, w); new pixels repeat the border."""
        margins = self.right, 0, self.down, 0
        return torch.nn.functional.pad(self._turned(x_BCHW), margins, mode="replicate")

    def undo(self, x_BChw: Tensor) -> Tensor:
        """Undoes :meth:`apply`."""
        turned = x_BChw[..., self.down :, self.right :].flip(self.mirrored)
        return turned.mT if self.transposed else turned

    def undo_pixels(self, x_BMN: Tensor, grid: Grid) -> Tensor:
        """Numbers of a transformed picture's pixels, (B, M, N), as those of its own (B, L, N)."""
        return self.undo(x_BMN.mT.unflatten(2, grid)).flatten(2).mT

    def _turned(self, x: Tensor) -> Tensor:
        """Of rows and columns in the last dimensions."""
        return (x.mT if self.transposed else x).flip(self.mirrored)


TURNS = ((False, ()), (False, (-2, -1)), (True, (-1,)), (True, (-2,)))
"""Upright, upside down, and to both sides."""
MOVES = ((0, 0), (2, 2), (1, 3), (3, 1))
"""Within squares of four pixels, down and right."""


def view(done: int, rounds: int, turned: bool) -> View:
    """That of the round after ``done`` others. The last one is not moved: squares of a reduced
    picture's pixels then lie on the network's, as in its training.
    """
    move = MOVES[done % len(MOVES) if done + 1 < rounds else 0]
    return View(*move, *(TURNS[done % len(TURNS)] if turned else ()))


def denoised_in(
    prior: DenoisingPrior, seen: View, estimate_BCHW: Tensor, pulled_BCHW: Tensor
) -> Denoised:
    """What a prior says of pictures in a view, of their own pixels; see
    :meth:`aps_core.types.DenoisingPrior.denoise`.
    """
    estimate_BChw = seen.apply(estimate_BCHW)
    shifted_grid = (estimate_BChw.shape[2], estimate_BChw.shape[3])
    said = prior.denoise(estimate_BChw, seen.apply(pulled_BCHW))
    numbers_BM3 = torch.stack([said.mean_BL, said.variance_BL, said.weight_BL], -1)
    mean_BL, variance_BL, weight_BL = seen.undo_pixels(numbers_BM3, shifted_grid).unbind(-1)
    return Denoised(mean_BL, variance_BL, seen.undo(said.colours_BCHW), weight_BL)
