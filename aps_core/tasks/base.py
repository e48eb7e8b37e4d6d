"""What every task shares: its spec, its inputs, its progress."""

from __future__ import annotations

import builtins
import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field, StringConstraints

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.imaging.images import Picture, encode_jpeg
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
"""Bytes of a checkpoint beside the tokens."""
CARRIED = "carried."
"""Prefix in a checkpoint of what a sampler carries."""

Size = tuple[int, int]
"""Width and height in pixels."""

Prompt = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
"""A prompt that may not stay empty."""


class TaskSpec(Spec, family=True):
    """One job's worth of work."""

    prior: str = Field(
        "embedded", min_length=1, max_length=64, description="Which prior to sample from."
    )
    seed: int = Field(
        0,
        ge=0,
        lt=2**32,
        description="Seed of every random draw; the same seed gives the same result.",
    )
    pictures: ClassVar[Mapping[str, bool]] = {}
    """The pictures a job may bring, by their name in :class:`Inputs`, and whether it must."""

    def check_inputs(self, inputs: Inputs) -> None:
        """Checks the spec against the pictures themselves, before any work; needs no torch.

        Raises:
            InvalidSpec: one is missing, one is not taken, or they do not fit together.
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
        self.check(
            sizes.get("image"),
            sizes.get("mask"),
            inputs.image is not None and inputs.image.has_alpha,
        )

    @abstractmethod
    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks the spec against the pictures that come with it, before any work.

        Raises:
            InvalidSpec: they do not fit together.
        """

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Downloaded weights it needs beside its prior's."""
        return ()

    @abstractmethod
    def output_size(self, image: Size | None) -> Size | None:
        """Width and height of the picture made from an upload of size ``image``; None for text."""

    def sampled_size(self, image: Size | None) -> Size | None:
        """Width and height of what is sampled, which a device limits; less than the result's where
        the rest is taken from the upload.
        """
        return self.output_size(image)

    @abstractmethod
    def work(self, image: Size | None) -> tuple[int, int]:
        """Tokens of the result, and how often each passes through what ``Engine.seconds_per_token``
        measures.
        """

    @abstractmethod
    def run(self, inputs: Inputs, context: RunContext) -> Result:
        """Computes the task; called through :func:`run`, which resolves the settings and reads the
        checkpoint.
        """

    @abstractmethod
    def resolved(self) -> Self:
        """This spec with the settings it will run with; JSON keeps no difference between a field
        set and one left out.

        Raises:
            InvalidSpec: there is no prior of that name, or it is of another kind.
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
    """A task that makes a picture from a picture."""

    prompt: str = Field(
        "", max_length=500, description="Text describing the picture; may stay empty."
    )
    num_samples: int = Field(1, ge=1, le=16, description="Samples to draw.")
    sampler: any_of(SamplerSpec, default="aps") = Field(  # type: ignore[valid-type]
        default_factory=APSConfig,
        description=(
            "How samples are drawn, 'aps' where no type is named; fields left out follow the"
            " prior's recommendation."
        ),
    )

    pictures: ClassVar[Mapping[str, bool]] = {"image": True, "mask": False}

    def prior_spec(self) -> ImagePriorSpec:
        """The prior this task samples from.

        Raises:
            InvalidSpec: there is no image prior of that name.
        """
        return self._prior_of(ImagePriorSpec)  # type: ignore[type-abstract]

    def settings(self) -> SamplerSpec:
        """Sampler settings with the recommendation filled in: the prior's, and the task's own over
        it.
        """
        sampler: SamplerSpec = self.sampler
        recommended = self.prior_spec().recommended_for(type(sampler), self.own_settings())
        return sampler.with_recommended(recommended)

    def own_settings(self) -> dict[str, Any]:
        """Fields of :class:`aps_core.samplers.aps.APSConfig` this task recommends over the prior's;
        the other samplers' settings follow from them.
        """
        return {}

    def resolved(self) -> Self:
        """Fills in the sampler's settings; see :meth:`TaskSpec.resolved`."""
        return self.model_copy(update={"sampler": self.settings()})

    @abstractmethod
    def output_size(self, image: Size | None) -> Size:
        """See :meth:`TaskSpec.output_size`."""

    def sampled_size(self, image: Size | None) -> Size:
        """See :meth:`TaskSpec.sampled_size`."""
        return self.output_size(image)

    def work(self, image: Size | None) -> tuple[int, int]:
        """See :meth:`TaskSpec.work`; what is measured is an inner step."""
        width, height = self.sampled_size(image)
        stride = self.prior_spec().stride
        sampler = self.settings()
        tokens = -(-width // stride) * -(-height // stride) * self.num_samples
        return tokens, sampler.steps * sampler.decodes


class MeasuredTaskSpec(PictureTaskSpec):
    """A picture task whose samples agree with a measurement."""

    loss: any_of(LossSpec, default="measurement") = Field(  # type: ignore[valid-type]
        default_factory=MeasurementLoss,
        description=(
            "What the samples are compared by, 'measurement' where no type is named; fields left"
            " out follow the prior's recommendation."
        ),
    )

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """What the loss needs."""
        loss: LossSpec = self.resolved().loss
        return loss.checkpoints

    def resolved(self) -> Self:
        """Fills in the settings of sampler and loss; see :meth:`TaskSpec.resolved`."""
        loss: LossSpec = self.loss
        recommended = self.prior_spec().recommended_loss.get(loss.type, {})
        return super().resolved().model_copy(update={"loss": loss.with_recommended(recommended)})


@dataclass(frozen=True)
class Inputs:
    """The pictures of a job; a text task has none."""

    image: Picture | None = None
    mask: Picture | None = None
    style: Picture | None = None

    def picture(self) -> Picture:
        """The picture to work on.

        Raises:
            InvalidSpec: there is none.
        """
        if self.image is None:
            raise InvalidSpec("This task works on a picture; send one as 'image'.")
        return self.image

    def digests(self) -> dict[str, str]:
        """SHA-256 of each picture's pixels, by its name."""
        return {
            name: picture.digest() for name, picture in vars(self).items() if picture is not None
        }


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
        return {
            "step": self.step,
            "total": self.total,
            "seconds": self.seconds,
            "prior_seconds": self.prior_seconds,
        }

    def preview(self) -> bytes | None:
        """The current estimate as a small JPEG; None where there is no picture."""
        return None

    def checkpoint(self) -> bytes:
        """The run's state as safetensors bytes, a few kilobytes; see :func:`run`.

        Empty where a sampler carries more than ``LARGEST_CARRIED`` bytes from step to step: such a
        run starts again.
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
        """See :meth:`Progress.event`; of the tokens, the first sample's.

        ``confidence`` is the score of each of ``anchors`` when it was decided; ``known`` comes with
        the first step and names the tokens that were decided before it.
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
            ],  # JSON knows no infinity
            **known,
            "loss_curve": [float(f"{loss:.4g}") for loss in info.loss_curve],
        }

    def preview(self) -> bytes:
        """See :meth:`Progress.preview`."""
        return encode_jpeg(self.picture_BCHW[0], quality=80)


def _indices(chosen_L: Tensor) -> list[int]:
    """Where a mask over tokens is true."""
    indices: list[int] = chosen_L.nonzero().flatten().tolist()
    return indices


ProgressHook = Callable[[Any], bool | None]
"""Called after every reverse step with the task's own :class:`Progress`; returning False cancels
the run.
"""


@dataclass(frozen=True)
class RunContext:
    """Engine, checkpoint and callbacks of one run."""

    engine: Engine
    fingerprint: str
    """Identifies prior, settings and inputs; a checkpoint of another one is not used."""
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
