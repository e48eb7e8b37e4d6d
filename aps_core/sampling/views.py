"""Views: shifts, transposes and mirrors the picture in every round before the prior sees it.

A network's errors depend on the position of the picture relative to its pixel blocks, and on the
orientation. Varying both from round to round averages the errors out at no cost.

Shapes: M pixels of a transformed picture of h rows and w columns, N values per pixel; see
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
    """One transform: transposes, then mirrors, then shifts."""

    down: int = 0
    """Shift in pixels."""
    right: int = 0
    """Shift in pixels."""
    transposed: bool = False
    mirrored: tuple[int, ...] = ()
    """Flipped dimensions: -2 is top to bottom, -1 left to right."""

    def apply(self, x_BCHW: Tensor) -> Tensor:
        """Transforms pictures (B, C, H, W) to (B, C, h, w); new pixels repeat the border."""
        margins = self.right, 0, self.down, 0
        return torch.nn.functional.pad(self._turned(x_BCHW), margins, mode="replicate")

    def undo(self, x_BChw: Tensor) -> Tensor:
        """Undoes :meth:`apply`."""
        turned = x_BChw[..., self.down :, self.right :].flip(self.mirrored)
        return turned.mT if self.transposed else turned

    def undo_pixels(self, x_BMN: Tensor, grid: Grid) -> Tensor:
        """Maps values per transformed pixel (B, M, N) to values per original pixel (B, L, N)."""
        return self.undo(x_BMN.mT.unflatten(2, grid)).flatten(2).mT

    def _turned(self, x: Tensor) -> Tensor:
        """Transposes and mirrors the last two dimensions."""
        return (x.mT if self.transposed else x).flip(self.mirrored)


TURNS = ((False, ()), (False, (-2, -1)), (True, (-1,)), (True, (-2,)))
"""Upright, upside down, and turned to either side."""
MOVES = ((0, 0), (2, 2), (1, 3), (3, 1))
"""Shifts down and right, within blocks of four pixels."""


def view(done: int, rounds: int, turned: bool) -> View:
    """View of the round after ``done`` finished ones. The last round is not shifted, so that the
    blocks of a reduced picture's pixels align with the network's, as in training.
    """
    move = MOVES[done % len(MOVES) if done + 1 < rounds else 0]
    return View(*move, *(TURNS[done % len(TURNS)] if turned else ()))


def denoised_in(
    prior: DenoisingPrior, seen: View, estimate_BCHW: Tensor, pulled_BCHW: Tensor
) -> Denoised:
    """The prior's prediction in a view, mapped back to the pictures' own pixels; see
    :meth:`aps_core.types.DenoisingPrior.denoise`.
    """
    estimate_BChw = seen.apply(estimate_BCHW)
    shifted_grid = (estimate_BChw.shape[2], estimate_BChw.shape[3])
    denoised = prior.denoise(estimate_BChw, seen.apply(pulled_BCHW))
    values_BM3 = torch.stack([denoised.mean_BL, denoised.variance_BL, denoised.weight_BL], -1)
    mean_BL, variance_BL, weight_BL = seen.undo_pixels(values_BM3, shifted_grid).unbind(-1)
    return Denoised(mean_BL, variance_BL, seen.undo(denoised.colours_BCHW), weight_BL)
