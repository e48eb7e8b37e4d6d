"""Interface of a task: a spec, its input pictures, and the context of one run.

To add one, write a file in this folder, or register a class under the entry-point group
``aps.tasks``.
"""

from __future__ import annotations

import builtins
import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field

from aps_core.errors import InvalidSpec
from aps_core.identify.diagnosis.found import Found
from aps_core.imaging.images import MaskCoverage, Picture, mask_coverage
from aps_core.priors import PriorSpec
from aps_core.registry import Spec
from aps_core.restoration.drawing import Hooks
from aps_core.tasks.progress import PictureProgress, ProgressHook, TileProgress
from aps_core.tasks.results import Result
from aps_core.types import InnerHook, SamplerState, Size, StepInfo

if TYPE_CHECKING:
    from aps_core.engines.engine import Engine
    from aps_core.types import Grid

AnyPrior = TypeVar("AnyPrior", bound=PriorSpec)

Slot = Literal["image", "mask", "style", "kernel", "whole"]
"""Name of a picture in :class:`Inputs`."""


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
                ).at(name)
        for name, needed in self.pictures.items():
            if needed and name not in given:
                missing = f"The task '{self.type}' needs the picture '{name}'; send it."
                raise InvalidSpec(missing).at(name)
        sizes = {name: picture.size for name, picture in given.items()}
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

    def check_mask(self, known: MaskCoverage) -> None:
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

    def reduced_size(self, image: Size | None) -> Size | None:
        """Width and height to which an upload of size ``image`` is reduced; None if it is used as
        it is.
        """
        return None

    @abstractmethod
    def work(self, image: Size | None) -> tuple[int, int]:
        """Number of tokens, and the number of times each runs the unit measured by
        ``Engine.seconds_per_token``.
        """

    def tokens_at_once(self, image: Size | None) -> int:
        """Tokens in the device's memory at a time; all of them by default."""
        return self.work(image)[0]

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
        exists = self.prior in PriorSpec.family
        spec = _default(PriorSpec.named(self.prior)) if exists else None
        if not isinstance(spec, kind):
            known = sorted(name for name, cls in PriorSpec.family.items() if issubclass(cls, kind))
            problem = (
                f"The task '{self.type}' cannot use the prior '{self.prior}'; it can use"
                if exists
                else f"There is no prior '{self.prior}'; known"
            )
            raise InvalidSpec(f"{problem}: {', '.join(known)}.").at("prior")
        return spec


@cache
def _default(cls: type[PriorSpec]) -> PriorSpec:
    return cls.model_validate({})


@dataclass(frozen=True)
class Inputs:
    """The pictures of a job; all None for a text task."""

    image: Picture | None = None
    mask: Picture | None = None
    style: Picture | None = None
    kernel: Picture | None = None
    """Blur kernel, for operators with ``needs_kernel``."""
    whole: Picture | None = None
    """The picture that ``image`` was cut from."""

    def picture(self) -> Picture:
        """The main picture.

        Raises:
            InvalidSpec: no picture was sent.
        """
        if self.image is None:
            raise InvalidSpec("This task works on a picture; send one as 'image'.")
        return self.image

    def examined(self) -> Picture:
        """The picture that shows what happened to the main one: the whole one, if that is a part.

        A small part shows too little of a wide blur.

        Raises:
            InvalidSpec: no picture was sent.
        """
        part = self.picture()
        # transparent pixels are missing where they are: in the part
        return part if self.whole is None or part.has_alpha else self.whole

    def digests(self) -> dict[str, str]:
        """SHA-256 of each picture's pixels by name."""
        return {
            name: picture.digest() for name, picture in vars(self).items() if picture is not None
        }


@dataclass(frozen=True)
class RunContext:
    """Engine, checkpoint and callbacks of one run."""

    engine: Engine
    fingerprint: str
    """Hash of prior, settings and inputs; a checkpoint with another fingerprint is ignored."""
    on_step: ProgressHook | None = None
    on_inner: InnerHook | None = None
    resume: SamplerState | None = None
    found: Found | None = None
    """How an unknown operator was identified; of a resumed run, before it stopped."""

    def hooks(
        self, grid: Grid, hidden: int = 0, *, tiled: bool = False, found: Found | None = None
    ) -> Hooks:
        """Hooks of a run that report its pictures to the task's.

        Args:
            grid: rows and columns of tokens, or of tiles.
            hidden: rows and columns of tokens at every side that lie beyond the picture.
            tiled: whether a step is a tile.
            found: how an unknown operator was identified.
        """

        def report(info: StepInfo) -> bool | None:
            if self.on_step is None:
                return None
            made = TileProgress if tiled else PictureProgress
            return self.on_step(made.of(info, grid, hidden, self.fingerprint, found))

        return Hooks(report, self.on_inner, self.resume)


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


def check_part(image: Size, whole: Size | None) -> None:
    """Checks that the image can be a part of the picture ``whole``, if there is one.

    Raises:
        InvalidSpec: the whole is smaller than the image.
    """
    if whole is not None and (whole[0] < image[0] or whole[1] < image[1]):
        raise InvalidSpec(
            f"The picture 'whole' is {whole[0]}x{whole[1]} pixels, smaller than the image; send"
            " the picture that the image was cut from, at the same resolution."
        ).at("whole")
