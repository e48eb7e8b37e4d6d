"""What a job's hook sees after each reverse step, in the words clients hear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aps_core._lazy import lazy_import
from aps_core.images import encode_jpeg

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.types import Grid, SamplerState, StepInfo
else:
    torch = lazy_import("torch")


@dataclass(frozen=True)
class Progress:
    """What a job's hook sees after each reverse step."""

    state: SamplerState
    total: int
    """Reverse steps of the whole run."""
    seconds: float
    """Wall time of this step."""
    prior_seconds: float
    """Of it, the prior's forward."""
    fingerprint: str

    @property
    def step(self) -> int:
        """Finished reverse steps."""
        return self.state.step

    @property
    def inner_steps(self) -> int:
        """Inner iterations of this step."""
        raise NotImplementedError

    def event(self) -> dict[str, Any]:
        """What a client hears of this step, as JSON."""
        return {"step": self.step, "total": self.total, "seconds": self.seconds, "prior_seconds": self.prior_seconds}

    def preview(self) -> bytes | None:
        """The current estimate as a small JPEG; None where there is no picture."""
        return None

    def checkpoint(self) -> bytes:
        """The run's state as safetensors bytes, a few kilobytes; see :func:`aps_core.tasks.run`."""
        from safetensors.torch import save

        tensors = {"z": self.state.z_BL.cpu().contiguous(), "generator": self.state.generator_state.cpu(), "step": torch.tensor(self.step)}
        return save(tensors, metadata={"fingerprint": self.fingerprint})


@dataclass(frozen=True)
class PictureProgress(Progress):
    """Progress of a picture."""

    info: StepInfo
    picture_BCHW: Tensor
    """Current estimate, cropped to the picture, unclamped."""
    grid: Grid
    noise_floor: float

    @property
    def inner_steps(self) -> int:
        """See :attr:`Progress.inner_steps`."""
        return len(self.info.loss_curve)

    def event(self) -> dict[str, Any]:
        """See :meth:`Progress.event`."""
        info = self.info
        return {
            **super().event(),
            "misfit": info.misfit,
            "noise_floor": self.noise_floor,
            "grid": self.grid,
            "anchors": info.anchors_BL[0].nonzero().flatten().tolist(),
            "loss_curve": [float(f"{loss:.4g}") for loss in info.loss_curve],
        }

    def preview(self) -> bytes:
        """See :meth:`Progress.preview`."""
        return encode_jpeg(self.picture_BCHW[0], quality=80)


ProgressHook = Callable[[Any], bool | None]
"""Called after every reverse step with the task's own :class:`Progress`; returning False cancels the run."""
