"""Restoration: finds a picture that agrees with a degraded upload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.diagnosis.found import Found
from aps_core.errors import InvalidSpec
from aps_core.fit import STEPS, judge
from aps_core.imaging import images, noise
from aps_core.imaging.images import Coverage, Picture
from aps_core.operators import OperatorSpec
from aps_core.operators.kernel_blur import check_kernel_size, kernel_rows
from aps_core.operators.unknown import Search, UnknownOperator
from aps_core.registry import any_of
from aps_core.tasks.base import Inputs, RunContext, Size, Slot
from aps_core.tasks.masks import check_coverage, mask_slot, mask_source
from aps_core.tasks.pictures import MeasuredTaskSpec
from aps_core.tasks.posterior import Run
from aps_core.tasks.results import PictureResult
from aps_core.types import InnerInfo

if TYPE_CHECKING:
    import torch
    from torch import Tensor

else:
    torch = lazy_import("torch")

Sigma = Annotated[float, Field(ge=0, le=1)] | Literal["auto"]


class RestoreSpec(MeasuredTaskSpec):
    """Restore a degraded picture: find a plausible picture whose measurement agrees with the
    upload.
    """

    type: Literal["restore"] = "restore"
    operator: any_of(OperatorSpec) = Field(description="How the picture was degraded.")  # type: ignore[valid-type]
    sigma: Sigma = Field(
        "auto",
        description=(
            "Noise standard deviation on the [-1, 1] scale (0.05 is 6.4 grey levels), or 'auto' to"
            " estimate it."
        ),
    )
    noise: Literal["gaussian", "poisson"] = Field(
        "gaussian",
        description=(
            "Noise of the measurement: the same everywhere, or photon noise, which grows with"
            " brightness."
        ),
    )
    peak: float = Field(
        100.0,
        gt=0,
        le=1e6,
        description="Mean photon count of a white pixel; fewer photons mean more noise.",
        json_schema_extra={"x-when": {"noise": "poisson"}},
    )
    working_size: int | None = Field(
        None,
        ge=32,
        le=4096,
        description=(
            "Reduce the upload so that the restored picture's longer side is at most this many"
            " pixels."
        ),
    )

    pictures: ClassVar[Mapping[str, bool]] = {"image": True, "mask": False, "kernel": False}

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Weights needed by operator and loss."""
        return *self.operator.checkpoints, *super().checkpoints

    def output_size(self, image: Size | None) -> Size:
        """Size of the restored picture for an upload of size ``image`` (width, height)."""
        width, height = self.measurement_size(_given(image))
        _, out_height, out_width = self.operator.image_shape((3, height, width))
        return out_width, out_height

    def default_sampler(self) -> str:
        """The prior's choice."""
        return self.prior_spec().restoring_sampler

    def reduced_size(self, image: Size | None) -> Size | None:
        """The measurement's size, if ``working_size`` reduces the upload."""
        size = self.measurement_size(_given(image))
        return None if size == image else size

    def measurement_size(self, image: Size) -> Size:
        """Size of the measurement: the upload's, reduced if ``working_size`` requires it."""
        width, height = image
        _, out_height, out_width = self.operator.image_shape((3, height, width))
        if self.working_size is None or max(out_height, out_width) <= self.working_size:
            return image
        scale = self.working_size / max(out_height, out_width)
        return max(1, int(width * scale)), max(1, int(height * scale))

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks prompt, operator shape and mask."""
        self.prior_spec().check_prompt(self.prompt)
        image = _given(image)
        if self.operator.needs_mask and mask is None and not has_alpha:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' needs a mask: send a 'mask' picture, or an image"
                " with transparent unknown pixels."
            )
        if mask is not None and not self.operator.needs_mask:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' takes no mask; leave the 'mask' picture out."
            )
        if mask is not None and mask != image:
            raise InvalidSpec(
                f"The mask is {mask[0]}x{mask[1]} pixels, the image {image[0]}x{image[1]}; they"
                " must have the same size."
            )
        width, height = self.measurement_size(image)
        operator = self.working_operator(image)
        operator.check_shape(operator.image_shape((3, height, width)))

    def check_further(self, sizes: Mapping[str, Size]) -> None:
        """Checks the kernel picture."""
        kernel = sizes.get("kernel")
        if self.operator.needs_kernel and kernel is None:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' needs a kernel: send a 'kernel' picture, or its"
                " weights in the operator's 'kernel'."
            )
        if kernel is not None:
            if not self.operator.needs_kernel:
                raise InvalidSpec(
                    f"Operator '{self.operator.type}' takes no kernel picture; leave it out."
                )
            check_kernel_size(*kernel)

    def working_operator(self, image: Size, kernel: Picture | None = None) -> OperatorSpec:
        """The operator at the working size, for an upload of size ``image``.

        Lengths in the spec are in pixels of the upload. This is the only place that scales them.
        """
        operator: OperatorSpec = self.operator
        if kernel is not None:
            operator = operator.with_kernel(kernel_rows(kernel))
        used = self.measurement_size(image)
        # sides are rounded down, so the longer one has the more exact factor
        return operator if used == image else operator.scaled(max(used) / max(image))

    def mask_slot(self, inputs: Inputs) -> Slot | None:
        """The mask or a transparent image, if the operator needs a mask."""
        return mask_slot(inputs) if self.operator.needs_mask else None

    def check_mask(self, known: Coverage) -> None:
        """Requires known and unknown pixels."""
        check_coverage(known)

    def run(self, inputs: Inputs, context: RunContext) -> PictureResult:
        """Identifies the operator if it is unknown, then restores."""
        if not isinstance(self.operator, UnknownOperator):
            return self._restored(inputs, context)
        found = context.found or self.operator.find(self._search(inputs, context))
        known = self.with_found(found)
        known.check_inputs(inputs)
        result = known._restored(inputs, replace(context, found=found))
        return replace(result, found=found, notes=[*found.notes(), *result.notes])

    def _search(self, inputs: Inputs, context: RunContext) -> Search:
        from aps_core.runtime.engine import ImageEngine

        engine = context.engine
        assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
        sigma = None if self.sigma == "auto" else self.sigma
        hook, total = context.on_inner, self.sampler.steps
        on_inner = hook and (lambda info: hook(replace(info, total=total)))
        return Search(inputs.picture(), engine, sigma, self.seed, on_inner)

    def work(self, image: Size | None) -> tuple[int, int]:
        """Includes identifying an unknown operator."""
        tokens, passes = super().work(image)
        if isinstance(self.operator, UnknownOperator):
            passes += -(-self.operator.token_passes(self.prior_spec().stride) // tokens)
        return tokens, passes

    def with_found(self, found: Found) -> Self:
        """This task with its unknown operator identified."""
        sizes = [size for size in (self.working_size, found.working_size) if size is not None]
        changes = {"operator": found.operator, "working_size": min(sizes, default=None)}
        return self.model_copy(update=changes)

    def _restored(self, inputs: Inputs, context: RunContext) -> PictureResult:
        """Builds measurement, operator and objective, then runs the sampler."""
        from aps_core.runtime.engine import ImageEngine

        engine = context.engine
        assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
        job = Run(context)
        upload = inputs.picture()
        y_CHW, mask_HW = self._measurement(inputs, engine.device)
        used = self.working_operator((upload.width, upload.height), inputs.kernel)
        reduced = y_CHW.shape[-2:] != (upload.height, upload.width)
        notes = [_reduced(y_CHW, self.operator, used)] if reduced else []
        shape = used.image_shape((3, y_CHW.shape[-2], y_CHW.shape[-1]))
        operator = used.bind(shape, engine.device, mask_HW)
        sigma, spread = self._noise(y_CHW, operator.weight, noise.least_sigma(upload))
        _, height, width = shape
        objective = engine.measurement_objective(
            operator.cropped(height, width), y_CHW, spread, self.loss
        )
        result = job.sample(self.model_copy(update={"sigma": sigma}), objective, (height, width))
        best_CHW = result.pictures_BCHW[result.best]
        words = self.operator.words()
        fit = judge(
            operator, words, best_CHW, y_CHW, spread, engine.prior.tokenizer, self._asked(context)
        )
        return replace(result, notes=notes, drawn=operator.state(), fit=fit)

    def _asked(self, context: RunContext) -> Callable[[int], bool | None] | None:
        """Asks the run's inner hook whether to go on, after the last reverse step."""
        hook, last = context.on_inner, self.sampler.steps
        return hook and (lambda step: hook(InnerInfo(last, last, step, STEPS, 0.0)))

    def _noise(
        self, y_CHW: Tensor, weight: Tensor | None, least: float
    ) -> tuple[float, float | Tensor]:
        """``sigma`` as a number, at least ``least`` if it is estimated, and the standard deviation
        of all noise.

        Photon noise is added to ``sigma``. If it is set, 'auto' means the least ``sigma``.
        """
        if self.noise == "gaussian":
            sigma = (
                max(least, noise.estimate_sigma(y_CHW, weight))
                if self.sigma == "auto"
                else self.sigma
            )
            return sigma, sigma
        sigma = least if self.sigma == "auto" else self.sigma
        return sigma, (noise.poisson_sigma(y_CHW, self.peak).square() + sigma**2).sqrt()

    def _measurement(self, inputs: Inputs, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """The upload (3, h, w) in [-1, 1] at its working size, and its mask at the same size (1 =
        known).
        """
        upload = inputs.picture()
        y_CHW = images.to_tensor(upload).to(device)
        mask_HW = None
        if self.operator.needs_mask:
            source = mask_source(inputs)
            assert source is not None  # ``check`` rejects this
            mask_HW = images.mask_to_tensor(source).to(device)
        width, height = self.measurement_size((upload.width, upload.height))
        if (height, width) != y_CHW.shape[-2:]:
            y_CHW = images.resize(y_CHW, (height, width))
            mask_HW = (
                None
                if mask_HW is None
                else (images.resize(mask_HW[None], (height, width))[0] > 0.999).float()
            )
        return self.operator.measurement(y_CHW), mask_HW


def _reduced(y_CHW: Tensor, given: OperatorSpec, used: OperatorSpec) -> str:
    """Note about a reduced upload."""
    note = f"The upload was reduced to {y_CHW.shape[-1]}x{y_CHW.shape[-2]} pixels."
    return note if used == given else f"{note} In these pixels the degradation is {used.words()}."


def _given(image: Size | None) -> Size:
    if image is None:
        raise InvalidSpec("Restoring needs a picture; send one as 'image'.")
    return image
