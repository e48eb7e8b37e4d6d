"""Progress of a job after each reverse step: event, preview and checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from aps_core._lazy import lazy_import
from aps_core.identify.diagnosis.found import Found
from aps_core.imaging.images import encode_jpeg
from aps_core.types import MASK, SamplerState, StepInfo

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.types import Grid
else:
    torch = lazy_import("torch")

MAX_CARRIED_BYTES = 16 << 20
"""Maximum bytes in a checkpoint besides the tokens: enough for the evidence of 590x590 tokens of
six bits.
"""
PREVIEW_SIDE = 768
"""Longest side of the preview of a tiled restoration, and within a step, in pixels."""
MAX_CELLS = 64
"""Most rows or columns of the tokens in an event. Finer grids are shown in cells, which are decided
with their last token.
"""
CARRIED = "carried."
"""Prefix of a sampler's carried tensors in a checkpoint."""


@dataclass(frozen=True)
class Progress:
    """Argument of a job's hook after each reverse step."""

    state: SamplerState
    total: int
    """Reverse steps of the whole run."""
    seconds: float
    """Wall time of this step in seconds."""
    prior_seconds: float
    """Part of ``seconds`` spent in the prior's forward passes."""
    fingerprint: str
    found: Found | None = field(default=None, kw_only=True)
    """How an unknown operator was identified."""

    @property
    def step(self) -> int:
        """Number of finished reverse steps."""
        return self.state.step

    @property
    def inner_steps(self) -> int:
        """Number of inner iterations in this step."""
        raise NotImplementedError

    def event(self) -> dict[str, Any]:
        """JSON payload of the progress event."""
        return {
            "step": self.step,
            "total": self.total,
            "seconds": self.seconds,
            "prior_seconds": self.prior_seconds,
        }

    def preview(self) -> bytes | None:
        """The current estimate as a small JPEG; None for text."""
        return None

    def checkpoint(self) -> bytes:
        """The run's state as safetensors bytes; see :func:`run`.

        Empty if the sampler carries more than ``MAX_CARRIED_BYTES`` bytes between steps. Such a run
        cannot resume and restarts.
        """
        from safetensors.torch import save

        carried = {
            f"{CARRIED}{name}": tensor.cpu().contiguous()
            for name, tensor in self.state.carried.items()
        }
        if sum(tensor.nbytes for tensor in carried.values()) > MAX_CARRIED_BYTES:
            return b""
        tensors = {
            "z": self.state.z_BL.cpu().contiguous(),
            "generator": self.state.generator_state.cpu(),
            "step": torch.tensor(self.step),
            **carried,
        }
        found = "" if self.found is None else self.found.model_dump_json()
        return save(tensors, metadata={"fingerprint": self.fingerprint, "found": found})


@dataclass(frozen=True)
class PictureProgress(Progress):
    """Progress of a picture task."""

    info: StepInfo
    """Report of the step, with the estimate cropped to the picture; values may exceed [-1, 1]."""
    grid: Grid
    hidden: int = 0
    """Rows and columns of tokens at every side of the grid that lie beyond the picture."""

    @classmethod
    def of(
        cls, info: StepInfo, grid: Grid, hidden: int, fingerprint: str, found: Found | None
    ) -> Self:
        """Progress from the report of a sampler."""
        return cls(
            state=info.state,
            total=info.total,
            seconds=info.seconds,
            prior_seconds=info.prior_seconds,
            fingerprint=fingerprint,
            found=found,
            info=info,
            grid=grid,
            hidden=hidden,
        )

    @property
    def inner_steps(self) -> int:
        """Decoder evaluations of this step, or tile."""
        return len(self.info.loss_curve)

    def event(self) -> dict[str, Any]:
        """Adds the misfit and the tokens of the first sample.

        ``confidence`` is the score of each of ``anchors`` when it was decided. ``known`` is only in
        the first event and lists tokens decided before the first step.
        """
        info, anchors_L = self.info, self.info.anchors_BL[0]
        rows, columns = (slice(self.hidden, side - self.hidden) for side in self.grid)
        shown = max(self.grid) - 2 * self.hidden
        every = 1 << max(0, math.ceil(math.log2(shown / MAX_CELLS)))

        def cells(values_L: Tensor) -> Tensor:
            """The smallest value of each cell; (rows, columns)."""
            values_11HW = values_L.float().view(1, 1, *self.grid)
            inside_11HW = values_11HW[..., rows, columns]
            pooled = torch.nn.functional.max_pool2d(-inside_11HW, every, ceil_mode=True)
            return -pooled[0, 0]

        decided_L = self.state.z_BL[0] != MASK
        before_hw = cells(decided_L & ~anchors_L) > 0
        anchors_hw = (cells(decided_L) > 0) & ~before_hw
        scores_L = torch.nan_to_num(info.confidence_BL[0])  # JSON cannot represent infinity
        scores_hw = cells(scores_L.where(anchors_L, torch.finfo(scores_L.dtype).max))
        return {
            **super().event(),
            "misfit": info.misfit,
            "noise_floor": info.noise_floor,
            "grid": tuple(anchors_hw.shape),
            "anchors": _indices(anchors_hw),
            "confidence": [float(f"{score:.3g}") for score in scores_hw[anchors_hw].tolist()],
            **({"known": _indices(before_hw)} if self.step == 1 else {}),
            "loss_curve": [float(f"{loss:.4g}") for loss in info.loss_curve],
        }

    def preview(self) -> bytes:
        """JPEG of the first sample."""
        return encode_jpeg(self.info.x_hat_BCHW[0], quality=80)


@dataclass(frozen=True)
class TileProgress(PictureProgress):
    """Progress of a tiled restoration after a tile: ``grid`` counts tiles, and the estimate is the
    picture so far.
    """

    def event(self) -> dict[str, Any]:
        """As for a whole picture, with tiles in place of tokens and without their confidence."""
        return {
            **Progress.event(self),
            "tiled": True,
            "misfit": self.info.misfit,
            "noise_floor": self.info.noise_floor,
            "grid": self.grid,
            "anchors": [self.step - 1],
            "loss_curve": [],
        }

    def preview(self) -> bytes:
        """JPEG of the first sample, reduced; grey where it is not restored yet."""
        return small_preview(self.info.x_hat_BCHW)


def small_preview(picture_BCHW: Tensor) -> bytes:
    """JPEG of the first sample, halved until no side exceeds ``PREVIEW_SIDE`` pixels."""
    every = 1 << max(0, math.ceil(math.log2(max(picture_BCHW.shape[-2:]) / PREVIEW_SIDE)))
    return encode_jpeg(picture_BCHW[0, :, ::every, ::every], quality=80)


class Checkpoint(NamedTuple):
    """Content of a checkpoint."""

    state: SamplerState
    found: Found | None


def read_checkpoint(data: bytes, fingerprint: str) -> Checkpoint | None:
    """What :meth:`Progress.checkpoint` stored; None if it is damaged or belongs to another run."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about = header.get("__metadata__", {})
        if about.get("fingerprint") != fingerprint:
            return None
        found = Found.model_validate_json(about["found"]) if about.get("found") else None
        tensors = load(data)
    except (SafetensorError, ValueError):
        return None
    carried = {
        name.removeprefix(CARRIED): tensor
        for name, tensor in tensors.items()
        if name.startswith(CARRIED)
    }
    state = SamplerState(int(tensors["step"]), tensors["z"], tensors["generator"], carried)
    return Checkpoint(state, found)


def _indices(chosen_hw: Tensor) -> list[int]:
    """Indices of the true entries of a mask, in raster order."""
    indices: list[int] = chosen_hw.flatten().nonzero().flatten().tolist()
    return indices


ProgressHook = Callable[[Any], bool | None]
"""Called after every reverse step with the task's :class:`Progress`; returning False cancels the
run.
"""
