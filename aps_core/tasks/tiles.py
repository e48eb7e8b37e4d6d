"""Restores a picture larger than the device's limit in overlapping tiles, one after another.

A tile is an ordinary restoration of a part of the picture, with a seed of its own. Measured values
that depend on pixels outside the tile are ignored: they are restored by a neighbour. Tiles at the
picture's border extend beyond it, if the sampler restores what lies there. A *step* of
such a job is one tile. Its state are the tokens of all finished tiles, from which a resumed job
decodes them again; or the picture so far, if the sampler's pictures are not those of its tokens.

The device holds one tile. Main memory holds the upload, the measurement in float32, and each sample
with its deviation in float16: 12 and 8 bytes a pixel of measurement and samples, besides the
upload.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.errors import SamplingCancelled
from aps_core.imaging.tiling import Tile, Tiling
from aps_core.tasks.base import RunContext
from aps_core.tasks.observation import WholeMeasurement
from aps_core.tasks.posterior import StepNumbers, judging_hook
from aps_core.tasks.progress import TileProgress
from aps_core.tasks.results import PictureResult
from aps_core.types import MASK, InnerHook, InnerInfo, SamplerState, StepInfo
from aps_core.verdict.fit import Fit, combined, judge

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
    from aps_core.tasks.restore import RestoreSpec
else:
    torch = lazy_import("torch")

EXAMINED = 16
"""Tiles, evenly spread, from which noise and verdict are computed."""


@dataclass(frozen=True)
class Finished:
    """What is kept of a finished tile."""

    misfit_B: Tensor
    noise_floor: float
    steps: list[StepNumbers]
    """Its reverse steps in this run; none if the tile was in the checkpoint."""

    @property
    def inner_steps(self) -> int:
        """Decoder evaluations in this run."""
        return sum(step.inner_steps for step in self.steps)

    @property
    def seconds(self) -> float:
        """Wall time of the steps in this run."""
        return sum(step.seconds for step in self.steps)

    @property
    def prior_seconds(self) -> float:
        """Part of ``seconds`` spent in the prior's forward passes."""
        return sum(step.prior_seconds for step in self.steps)


@dataclass
class TiledRun:
    """One run of a tiled restoration.

    Args:
        context: hooks and checkpoint.
        engine: the prior.
        spec: the resolved spec; its ``sigma`` is a number.
        tiling: the tiles.
        measured: the whole measurement.
    """

    context: RunContext
    engine: ImageEngine
    spec: RestoreSpec
    tiling: Tiling
    measured: WholeMeasurement
    started: float = field(default_factory=time.perf_counter)

    def run(self) -> PictureResult:
        """Decodes or copies the tiles of the checkpoint, then restores the others.

        Raises:
            InvalidSpec: no pixel of a tile is known.
            SamplingCancelled, SamplingDiverged: as for a whole picture.
        """
        tiling, resume, samples = self.tiling, self.context.resume, self.spec.num_samples
        for tile in tiling.tiles:
            self.measured.check_known(tile)
        canvas_BCHW = torch.zeros(samples, 4, tiling.height, tiling.width, dtype=torch.float16)
        codes_BL = torch.full((samples, tiling.tokens(self.engine.stride)), MASK, dtype=self._type)
        tiles: list[Finished] = []
        resumed = 0
        if resume is not None:
            resumed = resume.step
            codes_BL[:, : resume.z_BL.shape[1]] = resume.z_BL
            if not self.spec.sampler.decodes_tokens:
                tiles = _copied(resume, canvas_BCHW)
        used = 0
        for number, tile in enumerate(tiling.tiles, start=1):
            width, height = tile.size
            first, used = used, used + math.prod(self.engine.grid(height, width))
            if number <= len(tiles):
                continue
            tokens = codes_BL[:, first:used]
            x_BCHW, done = self._restore(tile, tokens, number <= resumed, max(number, resumed + 1))
            self._blend(x_BCHW, tile, canvas_BCHW)
            tiles.append(done)
            if number > resumed:
                self._report(tiles, codes_BL[:, : _rounded(used)], canvas_BCHW)
        return self._result(tiles, codes_BL, canvas_BCHW)

    @property
    def _type(self) -> torch.dtype:
        """The smallest type of a token."""
        small = len(self.engine.prior.tokenizer.codebook_KD) <= 2**15
        return torch.int16 if small else torch.int32

    def _restore(
        self, tile: Tile, tokens: Tensor, known: bool, step: int
    ) -> tuple[Tensor, Finished]:
        """One tile's samples in [-1, 1] and their deviation (B, 4, H, W).

        Args:
            tile: its place.
            tokens: of the samples (B, tokens of the tile); written unless ``known``.
            known: whether they are those of the checkpoint.
            step: the tile that is reported to the inner hook.
        """
        from aps_core.sampling import driver

        spec, engine, (width, height) = self.spec, self.engine, tile.size
        operator, y_CHW = self.measured.part(tile, engine.device)
        noise = spec.operator.likelihood_noise(spec.noise_deviation(y_CHW))
        objective = engine.measurement_objective(
            operator.cropped(height, width), y_CHW, noise, spec.loss
        )
        generator = torch.Generator(engine.device).manual_seed(_seed(spec.seed, tile))
        last = SamplerState(spec.sampler.steps, tokens.long(), generator.get_state())
        steps: list[StepNumbers] = []

        def keep(info: StepInfo) -> None:
            steps.append(StepNumbers.of(info))

        sample = driver.sample(
            engine.prior,
            objective,
            spec.sampler,
            grid=engine.grid(height, width),
            generator=generator,
            batch=spec.num_samples,
            condition=spec.prompt,
            on_step=keep,
            on_inner=self._inner_hook(step),
            resume=last if known else None,
        )
        tokens.copy_(sample.z_BL)
        x_BCHW, deviation_BHW = sample.x_BCHW.clamp(-1, 1), sample.deviation_BHW
        if deviation_BHW is None:
            deviation_BHW = torch.zeros_like(x_BCHW[:, 0])
        x_BCHW = torch.cat([x_BCHW, deviation_BHW[:, None]], 1)[..., :height, :width]
        return x_BCHW, Finished(sample.misfit_B.cpu(), objective.noise_floor, steps)

    def _blend(self, x_BCHW: Tensor, tile: Tile, canvas_BCHW: Tensor) -> None:
        """Adds a tile to the canvas with its crossfades."""
        rows, columns = tile
        down, across = (torch.tensor(span.weights(self.tiling.fade)) for span in tile)
        part_BCHW = canvas_BCHW[..., rows.start : rows.stop, columns.start : columns.stop]
        part_BCHW += x_BCHW.float().cpu() * down[:, None] * across

    def _inner_hook(self, step: int) -> InnerHook | None:
        """The run's inner hook, with tile ``step`` in place of the reverse step."""
        hook, total = self.context.on_inner, len(self.tiling.tiles)
        return hook and (
            lambda info: hook(
                InnerInfo(
                    step=step,
                    total=total,
                    iteration=(info.step - 1) * info.inner_steps + info.iteration,
                    inner_steps=info.total * info.inner_steps,
                    loss=info.loss,
                )
            )
        )

    def _picture(self, canvas_BCHW: Tensor) -> Tensor:
        """The canvas without what lies beyond the picture's borders."""
        beyond, (height, width) = self.measured.beyond, canvas_BCHW.shape[-2:]
        return canvas_BCHW[..., beyond : height - beyond, beyond : width - beyond]

    def _report(self, tiles: Sequence[Finished], codes_BL: Tensor, canvas_BCHW: Tensor) -> None:
        hook, done, total = self.context.on_step, tiles[-1], len(self.tiling.tiles)
        if hook is None:
            return
        carried = {} if self.spec.sampler.decodes_tokens else _carried(tiles, canvas_BCHW)
        progress = TileProgress(
            state=SamplerState(len(tiles), codes_BL, torch.empty(0, dtype=torch.uint8), carried),
            total=total,
            seconds=done.seconds,
            prior_seconds=done.prior_seconds,
            fingerprint=self.context.fingerprint,
            found=self.context.found,
            inner=done.inner_steps,
            misfit=float(done.misfit_B.mean()),
            noise_floor=done.noise_floor,
            grid=(len(self.tiling.rows), len(self.tiling.columns)),
            canvas_BCHW=self._picture(canvas_BCHW)[:, :3],
        )
        if hook(progress) is False:
            raise SamplingCancelled(f"Stopped after tile {len(tiles)} of {total}.")

    def _result(
        self, tiles: Sequence[Finished], codes_BL: Tensor, canvas_BCHW: Tensor
    ) -> PictureResult:
        areas = torch.tensor([float(math.prod(tile.size)) for tile in self.tiling.tiles])
        shares, new = areas / areas.sum(), [done for done in tiles if done.steps]
        misfit_B: list[float] = (
            torch.stack([done.misfit_B for done in tiles], 1) @ shares
        ).tolist()
        result = PictureResult(
            spec=self.spec,
            pictures_BCHW=self._picture(canvas_BCHW)[:, :3],
            deviation_BHW=self._picture(canvas_BCHW)[:, 3],
            codes_BL=codes_BL,
            misfit_B=misfit_B,
            noise_floor=float(torch.tensor([done.noise_floor for done in tiles]) @ shares),
            misfit_curve=[float(done.misfit_B.mean()) for done in new],
            inner_steps=[done.inner_steps for done in new],
            seconds={
                "prior": sum(done.prior_seconds for done in new),
                "sampling": sum(done.seconds for done in new),
                "total": 0.0,
            },
            fingerprint=self.context.fingerprint,
            notes=[f"Restored in {len(tiles)} overlapping tiles."],
        )
        fit = self._judged(canvas_BCHW[result.best, :3])
        result.seconds["total"] = time.perf_counter() - self.started
        return replace(result, fit=fit)

    def _judged(self, x_CHW: Tensor) -> Fit:
        """The verdict on some tiles of one sample, with what lies beyond its borders."""
        device, count = self.engine.device, len(self.tiling.tiles)
        words, fits = self.spec.operator.words(), list[Fit]()
        for tile in self.tiling.evenly(EXAMINED):
            (operator, y_CHW), (rows, columns) = self.measured.part(tile, device), tile
            picture_CHW = x_CHW[:, rows.start : rows.stop, columns.start : columns.stop]
            fits.append(
                judge(
                    operator,
                    words,
                    picture_CHW.to(device, torch.float32),
                    y_CHW,
                    self.spec.operator.judged_noise(self.spec.noise_deviation(y_CHW)),
                    self.engine.prior.tokenizer,
                    judging_hook(self.context, count),
                )
            )
        return combined(fits, words)


def _carried(tiles: Sequence[Finished], canvas_BCHW: Tensor) -> dict[str, Tensor]:
    """Finished tiles T for a checkpoint."""
    return {
        "canvas": canvas_BCHW,
        "misfit": torch.stack([done.misfit_B for done in tiles], 1),
        "noise_floor": torch.tensor([done.noise_floor for done in tiles], dtype=torch.float64),
    }


def _copied(resume: SamplerState, canvas_BCHW: Tensor) -> list[Finished]:
    """The finished tiles of a checkpoint; fills the canvas."""
    canvas_BCHW.copy_(resume.carried["canvas"])
    floors: list[float] = resume.carried["noise_floor"].tolist()
    columns = zip(resume.carried["misfit"].unbind(1), floors, strict=True)
    return [Finished(misfit_B, floor, []) for misfit_B, floor in columns]


def _seed(seed: int, tile: Tile) -> int:
    """Seed of a tile's random draws, from the job's seed and the tile's place."""
    place = f"{seed} {tile.rows.start} {tile.columns.start}"
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:4], "little")


def _rounded(count: int) -> int:
    """The next power of two. Checkpoints of ever new sizes would fragment the memory."""
    return 1 << (count - 1).bit_length()
