"""Restoration: finds a picture that agrees with a degraded upload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from aps_core.errors import InvalidSpec, about
from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.imaging.images import MaskCoverage, Picture
from aps_core.operators import AnyOperator, OperatorSpec
from aps_core.operators.kernel_blur import check_kernel_size, kernel_rows
from aps_core.restoration.layout import Layout
from aps_core.restoration.measurement import Measurement
from aps_core.restoration.plan import Plan, Settings, check_coverage, plan, stored
from aps_core.restoration.run import run
from aps_core.tasks.base import Inputs, RunContext, Slot, check_part
from aps_core.tasks.content import KEEPS_DEFAULT
from aps_core.tasks.masks import mask_slot
from aps_core.tasks.pictures import MeasuredTaskSpec
from aps_core.tasks.results import PictureResult
from aps_core.types import Size

Sigma = Annotated[float, Field(ge=0, le=1)] | Literal["auto"]


class RestoreSpec(MeasuredTaskSpec):
    """Restore a degraded picture: find a plausible picture whose measurement agrees with the
    upload.
    """

    type: Literal["restore"] = "restore"
    prior: str = Field(
        "embedded",
        min_length=1,
        max_length=64,
        description=(
            "Prior to sample from. If neither a prior nor a prompt nor a sampler is given, the one"
            " specialised in photographs, or in pages and screens, is chosen, if there is one."
        ),
        json_schema_extra={"x-chosen-unless": [*KEEPS_DEFAULT]},  # forms offer to leave it out
    )
    operator: AnyOperator = Field(description="How the picture was degraded.")
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
    tile: int | None = Field(
        None,
        ge=64,
        le=2048,
        description=(
            "Restore a larger picture in overlapping tiles of at most this many pixels a side, one"
            " after another: the size is then limited by time, not by memory."
        ),
    )

    pictures: ClassVar[Mapping[str, bool]] = {
        "image": True,
        **dict.fromkeys(("mask", "kernel", "whole"), False),
    }

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Weights needed by operator and loss."""
        return *self.operator.checkpoints, *super().checkpoints

    def layout(self, image: Size | None) -> Layout:
        """Sizes of the restoration of an upload of width and height ``image``."""
        return self._drawing().layout(self.operator, _given(image), self.prior_spec().stride)

    def output_size(self, image: Size | None) -> Size:
        """Size of the restored picture."""
        return self.layout(image).picture

    def sampled_size(self, image: Size | None) -> Size:
        """The largest tile, or the whole picture."""
        return self.layout(image).sampled

    def computed_size(self, image: Size | None) -> Size:
        """Includes what is restored beyond the borders."""
        return self.layout(image).computed

    def reduced_size(self, image: Size | None) -> Size | None:
        """The measurement's size, if ``working_size`` reduces the upload."""
        size = self.layout(image).measured
        return None if size == image else size

    def work(self, image: Size | None) -> tuple[int, int]:
        """All tiles, and identifying an unknown operator."""
        tokens, passes = super().work(image)
        stride = self.prior_spec().stride
        if (tiling := self.layout(image).tiling) is not None:
            tokens = tiling.tokens(stride) * self.num_samples
        if isinstance(self.operator, UnknownOperator):
            passes += -(-self.operator.token_passes(stride) // tokens)
        return tokens, passes

    def tokens_at_once(self, image: Size | None) -> int:
        """Those of the largest tile, or all."""
        return super().work(image)[0]

    def default_sampler(self) -> str:
        """The prior's choice."""
        return self.prior_spec().restoring_sampler

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks prompt, operator shape and mask."""
        self.prior_spec().check_prompt(self.prompt)
        self.layout(image).check(mask, has_alpha)

    def check_further(self, sizes: Mapping[str, Size]) -> None:
        """Checks the kernel picture, and that the image can be a part of the whole."""
        kernel, whole = sizes.get("kernel"), sizes.get("whole")
        check_part(_given(sizes.get("image")), whole)
        if self.operator.needs_kernel and kernel is None:
            raise InvalidSpec(
                f"Operator '{self.operator.type}' needs a kernel: send a 'kernel' picture, or its"
                " weights in the operator's 'kernel'."
            ).at("kernel")
        if kernel is not None:
            if not self.operator.needs_kernel:
                raise InvalidSpec(
                    f"Operator '{self.operator.type}' takes no kernel picture; leave it out."
                ).at("kernel")
            with about("kernel"):
                check_kernel_size(*kernel)

    def mask_slot(self, inputs: Inputs) -> Slot | None:
        """The mask or a transparent image, if the operator needs a mask."""
        return mask_slot(inputs) if self.operator.needs_mask else None

    def check_mask(self, known: MaskCoverage) -> None:
        """Requires known and unknown pixels."""
        check_coverage(known)

    def run(self, inputs: Inputs, context: RunContext) -> PictureResult:
        """Plans the restoration, which identifies an unknown operator, and runs it."""
        from aps_core.engines.engine import ImageEngine

        engine = context.engine
        assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
        planned = plan(
            self.measurement(inputs),
            self._drawing(),
            engine,
            found=context.found,
            on_inner=context.on_inner,
        )
        (width, height), tiling = planned.layout.computed, planned.layout.tiling
        hooks = context.hooks(
            (len(tiling.rows), len(tiling.columns)) if tiling else engine.grid(height, width),
            planned.layout.beyond // engine.stride,
            tiled=tiling is not None,
            found=planned.found,
        )
        made = run(planned, engine, hooks)
        executed = self._executed(planned, inputs.picture())
        return PictureResult.of(made, spec=executed, fingerprint=context.fingerprint)

    def measurement(self, inputs: Inputs) -> Measurement:
        """What the uploads of a job measure."""
        operator: OperatorSpec = self.operator
        if inputs.kernel is not None:
            operator = operator.with_kernel(kernel_rows(inputs.kernel))
        return Measurement(
            inputs.picture(),
            operator,
            self.sigma,
            mask=inputs.mask,
            whole=inputs.whole,
            peak=self.peak if self.noise == "poisson" else None,
        )

    def _drawing(self) -> Settings:
        """How samples are drawn."""
        return Settings(
            sampler=self.settings(),
            loss=self.loss,
            seed=self.seed,
            samples=self.num_samples,
            prompt=self.prompt,
            working_size=self.working_size,
            tile=self.tile,
        )

    def _executed(self, planned: Plan, upload: Picture) -> Self:
        """This task with everything that the plan decided."""
        given = self.operator if planned.found is None else planned.found.operator
        noise = {} if planned.peak is None else {"noise": "poisson", "peak": planned.peak}
        return self.model_copy(
            update={
                "operator": stored(given, upload.jpeg_quality, planned.layout.reduction)[0],
                "sigma": planned.sigma,
                "working_size": planned.settings.working_size,
                **noise,
            }
        )


def _given(image: Size | None) -> Size:
    if image is None:
        raise InvalidSpec("Restoring needs a picture; send one as 'image'.")
    return image
