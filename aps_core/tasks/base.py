"""What every task shares: its spec, its inputs, its progress, its result, and how it is run."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.config import APSConfig
from aps_core.errors import InsufficientMemory, InvalidSpec
from aps_core.images import Picture
from aps_core.priors import PriorSpec
from aps_core.registry import Spec
from aps_core.types import SamplerState, StepInfo

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engine import Engine
    from aps_core.types import Grid
else:
    torch = lazy_import("torch")

Size = tuple[int, int]
"""Width and height in pixels."""


class TaskSpec(Spec, family=True):
    """One job's worth of work."""

    prior: str = Field("embedded", min_length=1, max_length=64, description="Which prior to sample from.")
    prompt: str = Field("", max_length=500, description="Text describing the picture; may stay empty.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of every random draw; the same seed gives the same picture.")
    sampler: APSConfig = Field(default_factory=APSConfig, description="Sampler settings; fields left out follow the prior's recommendation.")

    @abstractmethod
    def output_size(self, image: Size) -> Size:
        """Width and height of the picture this task makes from an upload of size ``image``."""

    @abstractmethod
    def check(self, image: Size, mask: Size | None, has_alpha: bool) -> None:
        """Checks the spec against the pictures that come with it, before any work.

        Raises:
            InvalidSpec: they do not fit together.
        """

    @abstractmethod
    def run(self, inputs: Inputs, engine: Engine, fingerprint: str, on_step: ProgressHook | None, resume: SamplerState | None) -> Result:
        """Computes the task; called through :func:`run`, which resolves the settings and reads the checkpoint."""

    def prior_spec(self) -> PriorSpec:
        """The prior this task samples from.

        Raises:
            InvalidSpec: there is no prior of that name.
        """
        return PriorSpec.named(self.prior)(type=self.prior)

    def settings(self) -> APSConfig:
        """Sampler settings with the prior's recommendation filled in."""
        return self.sampler.with_recommended(self.prior_spec().recommended)

    def resolved(self) -> Self:
        """This spec with the sampler settings it will run with; JSON keeps no difference between a field set and one left out."""
        return self.model_copy(update={"sampler": self.settings()})


@dataclass(frozen=True)
class Inputs:
    """The pictures of a job."""

    image: Picture
    mask: Picture | None = None

    def digest(self) -> str:
        """SHA-256 over all pixels."""
        sha = hashlib.sha256()
        for picture in (self.image, self.mask):
            sha.update(picture.digest().encode() if picture is not None else b"-")
        return sha.hexdigest()


@dataclass(frozen=True)
class Progress:
    """What a job's hook sees after each reverse step."""

    info: StepInfo
    picture_BCHW: Tensor
    """Current estimate, cropped to the picture, unclamped."""
    grid: Grid
    noise_floor: float
    fingerprint: str

    @property
    def step(self) -> int:
        """Finished reverse steps."""
        return self.info.state.step

    @property
    def total(self) -> int:
        """Reverse steps of the whole run."""
        return self.info.total

    def checkpoint(self) -> bytes:
        """The run's state as safetensors bytes, a few kilobytes; see :func:`run`."""
        from safetensors.torch import save

        state = self.info.state
        tensors = {"z": state.z_BL.cpu().contiguous(), "generator": state.generator_state.cpu(), "step": torch.tensor(state.step)}
        return save(tensors, metadata={"fingerprint": self.fingerprint})


ProgressHook = Callable[[Progress], bool | None]
"""Called after every reverse step; returning False cancels the run."""


@dataclass(frozen=True)
class Result:
    """What a task returns."""

    spec: TaskSpec
    """The spec as it was run: sampler settings filled in, sigma a number."""
    pictures_BCHW: Tensor
    """Posterior samples in [-1, 1]."""
    codes_BL: Tensor
    misfit_B: list[float]
    """Data misfit of each sample, in the measurement's own units."""
    noise_floor: float
    """Misfit expected of the truth."""
    seconds: dict[str, float]
    """Wall time: ``sampling``, of it ``prior``; ``total``."""
    inner_steps: list[int]
    """Inner iterations used in each reverse step of this run."""
    fingerprint: str
    resumed_from_step: int | None = None
    notes: list[str] = field(default_factory=list)
    """What the caller should know: a reduced size, a checkpoint that could not be used."""
    drawn: dict[str, Tensor] = field(default_factory=dict)
    """What the operator drew at random (mask, kernel)."""

    def sidecar(self) -> dict[str, Any]:
        """Everything needed to understand and repeat the job, as JSON."""
        height, width = self.pictures_BCHW.shape[-2:]
        return {
            "notice": "Made by a generative model: a plausible sample that agrees with the measurement, not evidence of what was there.",
            "spec": self.spec.model_dump(mode="json"),
            "size": {"width": width, "height": height},
            "misfit": self.misfit_B,
            "noise_floor": self.noise_floor,
            "seconds": self.seconds,
            "inner_steps": self.inner_steps,
            "resumed_from_step": self.resumed_from_step,
            "notes": self.notes,
            "fingerprint": self.fingerprint,
            "torch": torch.__version__,
        }


def run(spec: TaskSpec, inputs: Inputs, engine: Engine, on_step: ProgressHook | None = None, resume: bytes | None = None) -> Result:
    """Runs a task on a loaded engine, from the start or from a checkpoint of the same job.

    A checkpoint of another job, prior or library version is not used; the result says so in ``notes``.

    Raises:
        APSError: see :mod:`aps_core.errors`; SamplingCancelled when ``on_step`` returned False.
    """
    if spec.prior != engine.spec.type:
        raise InvalidSpec(f"This engine holds the prior '{engine.spec.type}', the job asks for '{spec.prior}'.")
    spec = spec.resolved()
    fingerprint = engine.fingerprint(spec, inputs)
    state = _read_checkpoint(resume, fingerprint) if resume is not None else None
    try:
        result = spec.run(inputs, engine, fingerprint, on_step, state)
    except torch.OutOfMemoryError as error:
        raise InsufficientMemory("The job needs more memory than the device has free; send a smaller picture or set 'working_size'.") from error
    if resume is not None and state is None:
        result.notes.append("The checkpoint belonged to another job, prior or library version; the job started again.")
    return result


def validate_spec(data: dict[str, Any]) -> TaskSpec:
    """Validates the JSON of a spec by its ``type``.

    Raises:
        InvalidSpec: the type is unknown.
        pydantic.ValidationError: a field is missing, unknown or out of range.
    """
    return TaskSpec.named(str(data.get("type"))).model_validate(data)


def spec_digest(spec: TaskSpec) -> str:
    """SHA-256 of a spec's canonical JSON."""
    return hashlib.sha256(json.dumps(spec.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def _read_checkpoint(data: bytes, fingerprint: str) -> SamplerState | None:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        if header.get("__metadata__", {}).get("fingerprint") != fingerprint:
            return None
        tensors = load(data)
    except (SafetensorError, ValueError):
        return None
    return SamplerState(int(tensors["step"]), tensors["z"], tensors["generator"])
