"""What every task shares: its spec, its inputs, its progress."""

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
from aps_core.priors import ImagePriorSpec, PriorSpec
from aps_core.registry import Spec
from aps_core.sampling.config import APSConfig
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

Size = tuple[int, int]
"""Width and height in pixels."""

Slot = Literal["image", "mask", "style"]
"""Name of a picture in :class:`Inputs`."""

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
            InvalidSpec: see :meth:`check_sizes` and :meth:`check_mask`.
        """
        self.check_sizes(inputs)
        if (slot := self.mask_slot(inputs)) is not None:
            self.check_mask(mask_coverage(getattr(inputs, slot)))

    def check_sizes(self, inputs: Inputs) -> None:
        """Checks the spec against the pictures' sizes and kinds; reads no pixel.

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

    def mask_slot(self, inputs: Inputs) -> Slot | None:
        """Which picture's pixels :meth:`check_mask` is to be given; None where no mask is read."""
        return None

    def check_mask(self, known: Coverage) -> None:
        """Checks how much of the picture its mask leaves as it is.

        Raises:
            InvalidSpec: nothing is left to do, or nothing to go by.
        """

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
    sampler: APSConfig = Field(
        default_factory=APSConfig,
        description="Sampler settings; fields left out follow the prior's recommendation.",
    )

    pictures: ClassVar[Mapping[str, bool]] = {"image": True, "mask": False}

    def prior_spec(self) -> ImagePriorSpec:
        """The prior this task samples from.

        Raises:
            InvalidSpec: there is no image prior of that name.
        """
        return self._prior_of(ImagePriorSpec)  # type: ignore[type-abstract]

    def settings(self) -> APSConfig:
        """Sampler settings with the recommendation filled in."""
        return self.sampler.with_recommended(self.recommended())

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """See :attr:`TaskSpec.checkpoints`: the perceptual distance's."""
        settings = self.settings()
        return ("vgg16",) if settings.perceptual_weight and settings.perceptual == "vgg16" else ()

    def recommended(self) -> dict[str, Any]:
        """Sampler settings used where the job leaves them out: the prior's, or the task's own."""
        return self.prior_spec().recommended

    def resolved(self) -> Self:
        """See :meth:`TaskSpec.resolved`."""
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
        config = self.settings()
        return -(-width // stride) * -(-height // stride) * self.num_samples, config.steps * max(
            1, config.inner_steps
        )


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
        """The run's state as safetensors bytes, a few kilobytes; see :func:`run`."""
        from safetensors.torch import save

        tensors = {
            "z": self.state.z_BL.cpu().contiguous(),
            "generator": self.state.generator_state.cpu(),
            "step": torch.tensor(self.step),
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
