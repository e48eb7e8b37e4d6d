"""Base classes of tasks: spec, inputs and progress."""

from __future__ import annotations

import builtins
import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, StringConstraints

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging.images import Coverage, Picture, encode_jpeg, mask_coverage
from aps_core.losses import LossSpec
from aps_core.losses.measurement import MeasurementLoss
from aps_core.priors import ImagePriorSpec, PriorSpec
from aps_core.registry import Spec, any_of
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig
from aps_core.tasks.results import Result
from aps_core.types import MASK, InnerHook, SamplerState, StepInfo

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.runtime.engine import Engine
    from aps_core.types import Grid
else:
    torch = lazy_import("torch")

AnyPrior = TypeVar("AnyPrior", bound=PriorSpec)

LARGEST_CARRIED = 1 << 20
"""Maximum bytes in a checkpoint besides the tokens."""
CARRIED = "carried."
"""Prefix of a sampler's carried tensors in a checkpoint."""

Size = tuple[int, int]
"""Width and height in pixels."""

Slot = Literal["image", "mask", "style", "kernel"]
"""Name of a picture in :class:`Inputs`."""

Prompt = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
"""A prompt that must not be empty."""


class TaskSpec(Spec, family=True):
    """The complete description of one job."""

    prior: str = Field("embedded", min_length=1, max_length=64, description="Prior to sample from.")
    seed: int = Field(
        0,
        ge=0,
        lt=2**32,
        description="Seed of every random draw; the same seed gives the same result.",
    )
    pictures: ClassVar[Mapping[str, bool]] = {}
    """Accepted pictures by their name in :class:`Inputs`, and whether each is required."""

    def check_inputs(self, inputs: Inputs) -> None:
        """Checks the spec against the pictures, including mask pixels, before any work. Needs no
        torch.

        Raises:
            InvalidSpec: see :meth:`check_sizes` and :meth:`check_mask`.
        """
        self.check_sizes(inputs)
        if (slot := self.mask_slot(inputs)) is not None:
            self.check_mask(mask_coverage(getattr(inputs, slot)))

    def check_sizes(self, inputs: Inputs) -> None:
        """Checks the spec against sizes and names of the pictures without reading pixels.

        Raises:
            InvalidSpec: a picture is missing, not accepted, or incompatible with the others.
        """
        given = {name: picture for name, picture in vars(inputs).items() if picture is not None}
        for name in given:
            if name not in self.pictures:
                raise InvalidSpec(
                    f"The task '{self.type}' takes no picture '{name}'; leave it out."
                )
        for name, needed in self.pictures.items():
            if needed and name not in given:
                raise InvalidSpec(f"The task '{self.type}' needs the picture '{name}'; send it.")
        sizes = {name: (picture.width, picture.height) for name, picture in given.items()}
        self.check_further(sizes)
        self.check(
            sizes.get("image"),
            sizes.get("mask"),
            inputs.image is not None and inputs.image.has_alpha,
        )

    def check_further(self, sizes: Mapping[str, Size]) -> None:
        """Checks pictures other than image and mask, given all sizes by name.

        Raises:
            InvalidSpec: a picture is missing, not accepted, or of an impossible size.
        """

    def mask_slot(self, inputs: Inputs) -> Slot | None:
        """Picture whose pixels are passed to :meth:`check_mask`; None if the task reads no mask."""
        return None

    def check_mask(self, known: Coverage) -> None:
        """Checks the known share of the masked picture.

        Raises:
            InvalidSpec: everything is known, or nothing is.
        """

    @abstractmethod
    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks the spec against the sizes of the pictures, before any work.

        Args:
            image: width and height of the upload in pixels; None if there is none.
            mask: width and height of the mask picture in pixels; None if there is none.
            has_alpha: whether the upload has transparent pixels.

        Raises:
            InvalidSpec: spec and pictures are incompatible.
        """

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of downloaded weights required besides the prior's."""
        return ()

    @abstractmethod
    def output_size(self, image: Size | None) -> Size | None:
        """Width and height of the result for an upload of size ``image``; None for text."""

    def sampled_size(self, image: Size | None) -> Size | None:
        """Width and height of the sampled picture, which the device's limit applies to.

        Smaller than the result if some of its pixels are copied from the upload.
        """
        return self.output_size(image)

    @abstractmethod
    def work(self, image: Size | None) -> tuple[int, int]:
        """Number of tokens, and the number of times each runs the unit measured by
        ``Engine.seconds_per_token``.
        """

    @abstractmethod
    def run(self, inputs: Inputs, context: RunContext) -> Result:
        """Computes the task. Call :func:`run` instead, which resolves settings and reads the
        checkpoint.
        """

    def settled(self) -> Self:
        """Returns this spec with machine-dependent choices fixed; see :func:`run`."""
        return self

    def caveats(self) -> list[str]:
        """Notes for the result about machine-dependent choices."""
        return []

    @abstractmethod
    def resolved(self) -> Self:
        """Returns this spec with every setting filled in.

        Call it before serialising: JSON does not distinguish fields that were set from defaults.

        Raises:
            InvalidSpec: the prior is unknown or of another kind.
        """

    def _prior_of(self, kind: builtins.type[AnyPrior]) -> AnyPrior:
        spec = PriorSpec.named(self.prior)(type=self.prior)
        if not isinstance(spec, kind):
            known = sorted(name for name, cls in PriorSpec.family.items() if issubclass(cls, kind))
            raise InvalidSpec(
                f"The task '{self.type}' cannot use the prior '{self.prior}'; it can use:"
                f" {', '.join(known)}."
            )
        return spec


class PictureTaskSpec(TaskSpec):
    """A task whose result is a picture."""

    prompt: str = Field("", max_length=500, description="Optional text that describes the picture.")
    num_samples: int = Field(1, ge=1, le=16, description="Samples to draw.")
    sampler: any_of(SamplerSpec, default="aps") = Field(  # type: ignore[valid-type]
        default_factory=APSConfig,
        description=(
            "Sampler and its settings ('aps' if no type is given); omitted fields follow the"
            " prior's recommendation."
        ),
    )

    pictures: ClassVar[Mapping[str, bool]] = {"image": True, "mask": False}

    def prior_spec(self) -> ImagePriorSpec:
        """Spec of the prior this task samples from.

        Raises:
            InvalidSpec: no image prior has that name.
        """
        return self._prior_of(ImagePriorSpec)  # type: ignore[type-abstract]

    def settings(self) -> SamplerSpec:
        """Sampler settings with recommendations filled in; the task's override the prior's."""
        sampler: SamplerSpec = self.sampler
        recommended = self.prior_spec().recommended_for(type(sampler), self.own_settings())
        return sampler.with_recommended(recommended)

    def own_settings(self) -> dict[str, Any]:
        """Fields of :class:`aps_core.samplers.aps.APSConfig` that this task recommends, overriding
        the prior's. Other samplers derive their settings from them.
        """
        return {}

    def resolved(self) -> Self:
        """Fills in the sampler's settings."""
        return self.model_copy(update={"sampler": self.settings()})

    @abstractmethod
    def output_size(self, image: Size | None) -> Size:
        """Always a size, never None."""

    def sampled_size(self, image: Size | None) -> Size:
        """Always a size; equals :meth:`output_size` by default."""
        return self.output_size(image)

    def work(self, image: Size | None) -> tuple[int, int]:
        """The measured unit is one inner step."""
        width, height = self.sampled_size(image)
        stride = self.prior_spec().stride
        sampler = self.settings()
        tokens = -(-width // stride) * -(-height // stride) * self.num_samples
        return tokens, sampler.steps * sampler.decodes


class MeasuredTaskSpec(PictureTaskSpec):
    """A picture task whose samples must agree with a measurement."""

    loss: any_of(LossSpec, default="measurement") = Field(  # type: ignore[valid-type]
        default_factory=MeasurementLoss,
        description=(
            "Loss and its settings ('measurement' if no type is given); omitted fields follow the"
            " prior's recommendation."
        ),
    )

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Weights needed by the loss."""
        loss: LossSpec = self.resolved().loss
        return loss.checkpoints

    def resolved(self) -> Self:
        """Fills in the settings of sampler and loss."""
        loss: LossSpec = self.loss
        recommended = self.prior_spec().recommended_loss.get(loss.type, {})
        return super().resolved().model_copy(update={"loss": loss.with_recommended(recommended)})

    def settled(self) -> Self:
        """Fixes the loss's machine-dependent choices."""
        loss: LossSpec = self.loss
        return self.model_copy(update={"loss": loss.settled()})

    def caveats(self) -> list[str]:
        """Notes of the loss."""
        loss: LossSpec = self.loss
        return loss.caveats()


@dataclass(frozen=True)
class Inputs:
    """The pictures of a job; all None for a text task."""

    image: Picture | None = None
    mask: Picture | None = None
    style: Picture | None = None
    kernel: Picture | None = None
    """Blur kernel, for operators with ``needs_kernel``."""

    def picture(self) -> Picture:
        """The main picture.

        Raises:
            InvalidSpec: no picture was sent.
        """
        if self.image is None:
            raise InvalidSpec("This task works on a picture; send one as 'image'.")
        return self.image

    def digests(self) -> dict[str, str]:
        """SHA-256 of each picture's pixels by name."""
        return {
            name: picture.digest() for name, picture in vars(self).items() if picture is not None
        }


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
        """The run's state as safetensors bytes, a few kilobytes; see :func:`run`.

        Empty if the sampler carries more than ``LARGEST_CARRIED`` bytes between steps. Such a run
        cannot resume and restarts.
        """
        from safetensors.torch import save

        carried = {
            f"{CARRIED}{name}": tensor.cpu().contiguous()
            for name, tensor in self.state.carried.items()
        }
        if sum(tensor.nbytes for tensor in carried.values()) > LARGEST_CARRIED:
            return b""
        tensors = {
            "z": self.state.z_BL.cpu().contiguous(),
            "generator": self.state.generator_state.cpu(),
            "step": torch.tensor(self.step),
            **carried,
        }
        return save(tensors, metadata={"fingerprint": self.fingerprint})


@dataclass(frozen=True)
class PictureProgress(Progress):
    """Progress of a picture task."""

    info: StepInfo
    picture_BCHW: Tensor
    """Current estimate, cropped to the picture; values may exceed [-1, 1]."""
    grid: Grid
    noise_floor: float

    @property
    def inner_steps(self) -> int:
        """Decoder evaluations of this step."""
        return len(self.info.loss_curve)

    def event(self) -> dict[str, Any]:
        """Adds the misfit and the tokens of the first sample.

        ``confidence`` is the score of each of ``anchors`` when it was decided. ``known`` is only in
        the first event and lists tokens decided before the first step.
        """
        info, anchors_L = self.info, self.info.anchors_BL[0]
        known = (
            {"known": _indices((self.state.z_BL[0] != MASK) & ~anchors_L)} if self.step == 1 else {}
        )
        return {
            **super().event(),
            "misfit": info.misfit,
            "noise_floor": self.noise_floor,
            "grid": self.grid,
            "anchors": _indices(anchors_L),
            "confidence": [
                float(f"{score:.3g}")
                for score in torch.nan_to_num(info.confidence_BL[0][anchors_L]).tolist()
            ],  # JSON cannot represent infinity
            **known,
            "loss_curve": [float(f"{loss:.4g}") for loss in info.loss_curve],
        }

    def preview(self) -> bytes:
        """JPEG of the first sample."""
        return encode_jpeg(self.picture_BCHW[0], quality=80)


def _indices(chosen_L: Tensor) -> list[int]:
    """Indices of the true entries of a mask over tokens."""
    indices: list[int] = chosen_L.nonzero().flatten().tolist()
    return indices


ProgressHook = Callable[[Any], bool | None]
"""Called after every reverse step with the task's :class:`Progress`; returning False cancels the
run.
"""


@dataclass(frozen=True)
class RunContext:
    """Engine, checkpoint and callbacks of one run."""

    engine: Engine
    fingerprint: str
    """Hash of prior, settings and inputs; a checkpoint with another fingerprint is ignored."""
    on_step: ProgressHook | None = None
    on_inner: InnerHook | None = None
    resume: SamplerState | None = None


def validate_spec(data: dict[str, Any]) -> TaskSpec:
    """Validates the JSON of a spec by its ``type``.

    Raises:
        InvalidSpec: the type is unknown.
        pydantic.ValidationError: a field is missing, unknown or out of range.
    """
    return TaskSpec.named(str(data.get("type"))).model_validate(data)


def spec_digest(spec: TaskSpec) -> str:
    """SHA-256 of a spec's canonical JSON."""
    return hashlib.sha256(
        json.dumps(spec.model_dump(mode="json"), sort_keys=True).encode()
    ).hexdigest()
