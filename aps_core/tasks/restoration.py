"""Computes a restoration whose operator is known: as a whole, or in tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aps_core.identify.kinds.unknown import Search
from aps_core.imaging import noise
from aps_core.operators import OperatorSpec
from aps_core.operators.compose import AVERAGED, STORED, as_stored
from aps_core.operators.jpeg import averaged
from aps_core.tasks.base import Inputs, RunContext
from aps_core.tasks.masks import mask_slot
from aps_core.tasks.observation import WholeMeasurement, observation
from aps_core.tasks.posterior import Run, judging_hook
from aps_core.tasks.results import PictureResult
from aps_core.tasks.tiles import EXAMINED, TiledRun
from aps_core.verdict.fit import judge

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
    from aps_core.imaging.images import Picture
    from aps_core.tasks.restore import RestoreSpec


def searched(spec: RestoreSpec, inputs: Inputs, context: RunContext) -> Search:
    """What an unknown operator is identified from."""
    from aps_core.engines.engine import ImageEngine

    engine = context.engine
    assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
    hook, total = context.on_inner, spec.sampler.steps
    return Search(
        upload=inputs.examined(),
        engine=engine,
        sigma=None if spec.sigma == "auto" else spec.sigma,
        seed=spec.seed,
        on_inner=hook and (lambda info: hook(replace(info, total=total))),
        part=inputs.picture().size,
        working_size=spec.working_size,
    )


def restored(spec: RestoreSpec, inputs: Inputs, context: RunContext) -> PictureResult:
    """Reads the measurement, then samples the picture as a whole or in tiles."""
    from aps_core.engines.engine import ImageEngine

    engine, upload = context.engine, inputs.picture()
    assert isinstance(engine, ImageEngine)  # ``resolved`` rejects other priors
    size = upload.size
    spec, notes = _as_stored(spec, upload)
    tiling = spec.tiling(size)
    where = engine.device if tiling is None else "cpu"
    y_CHW, mask_HW = observation(inputs, spec.operator, spec.measurement_size(size), where)
    used = spec.working_operator(size, inputs.kernel)
    least = noise.least_sigma(upload, max(spec.measurement_size(size)) / max(size))
    if tiling is None:
        beyond = spec.beyond(size, inputs.kernel)
        unrounded = used.without_rounding()
        result = _whole(spec, context, engine, unrounded, y_CHW, mask_HW, least, beyond)
    else:
        cut = WholeMeasurement(used.without_rounding(), y_CHW, mask_HW, spec.beyond(size))
        exact = spec.with_sigma(*cut.sample(tiling.evenly(EXAMINED)), least)
        result = TiledRun(
            context=context, engine=engine, spec=exact, tiling=tiling, measured=cut
        ).run()
    reduced = y_CHW.shape[-2:] != (upload.height, upload.width)
    if reduced:
        notes.append(_reduced(y_CHW, spec.operator, used))
    masked = spec.operator.needs_mask and mask_slot(inputs) == "image"
    if upload.is_transparent and not masked:
        notes.append("The upload's transparency was ignored; colours that it hid may show.")
    return replace(result, notes=[*notes, *result.notes])


def _as_stored(spec: RestoreSpec, upload: Picture) -> tuple[RestoreSpec, list[str]]:
    """The task with the compression of an uploaded JPEG, or without any where pixels are averaged
    by a reduction; and a note about it.
    """
    given = spec.operator
    if averaged(max(spec.measurement_size(upload.size)) / max(upload.size)):
        operator, note = given.without_rounding() if given.rounding else given, AVERAGED
    else:
        operator = as_stored(given, upload.jpeg_quality)
        note = STORED.format(upload.jpeg_quality)
    if operator == given:
        return spec, []
    return spec.model_copy(update={"operator": operator}), [note]


def _whole(
    spec: RestoreSpec,
    context: RunContext,
    engine: ImageEngine,
    used: OperatorSpec,
    y_CHW: Tensor,
    mask_HW: Tensor | None,
    least: float,
    beyond: int,
) -> PictureResult:
    """Samples the whole picture, and as many pixels ``beyond`` each of its borders."""
    job = Run(context)
    shape = used.image_shape((3, y_CHW.shape[-2], y_CHW.shape[-1]))
    operator = used.bind(shape, engine.device, mask_HW)
    wide = used.bind_wide(shape, beyond, engine.device) if beyond else operator
    wider = shape[1] + 2 * beyond, shape[2] + 2 * beyond
    exact = spec.with_sigma(y_CHW, operator.weight, least)
    spread = exact.noise_deviation(y_CHW)
    assumed = spec.operator.likelihood_noise(spread)
    objective = engine.measurement_objective(wide.cropped(*wider), y_CHW, assumed, spec.loss)
    result = job.sample(exact, objective, shape[1:], beyond=beyond)
    best_CHW = result.pictures_BCHW[result.best]
    words, asked = spec.operator.words(), judging_hook(context, spec.sampler.steps)
    judged = spec.operator.judged_noise(spread)
    fit = judge(operator, words, best_CHW, y_CHW, judged, engine.prior.tokenizer, asked)
    return replace(result, drawn=operator.state(), fit=fit)


def _reduced(y_CHW: Tensor, given: OperatorSpec, used: OperatorSpec) -> str:
    """Note about a reduced upload."""
    note = f"The upload was reduced to {y_CHW.shape[-1]}x{y_CHW.shape[-2]} pixels."
    return note if used == given else f"{note} In these pixels the degradation is {used.words()}."
