"""The most detailed part of a blurred picture, and its restorations."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from skimage.restoration import unsupervised_wiener
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.errors import NothingToRestore
from aps_core.evaluation.baselines import TV_WEIGHTS_DOCUMENTS
from aps_core.identify.blind.effort import MARGIN
from aps_core.identify.blind.em import Estimate
from aps_core.identify.blind.families import FAMILIES, Name, Parameters
from aps_core.identify.blind.photograph import most_detailed
from aps_core.identify.diagnosis import examine
from aps_core.identify.kinds.blind_blur import BlindBlur, first_guess
from aps_core.identify.search import Search
from aps_core.imaging import images, noise
from aps_core.imaging.noise_level import QUANTISATION
from aps_core.imaging.total_variation import WEIGHT, total_variation_estimate
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import OperatorSpec
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.tasks.results import PictureResult
from research.blind.maxim import Maxim

SETS = {
    "photos": ("embedded", WEIGHT),
    "documents": ("embedded_documents", TV_WEIGHTS_DOCUMENTS["motion_blur"]),
}
"""By folder: prior, and weight of the total variation."""
REFLECTED = 32
"""Pixels by which a picture is continued for the Wiener filter, which assumes that it repeats."""


@dataclass(frozen=True)
class Restorers:
    """What restores pictures, loaded once."""

    engine: ImageEngine
    """With the prior that draws pictures for ``em``."""
    default: ImageEngine
    """With the prior of a job that names none."""
    maxim: Maxim | None


class Part:
    """The most detailed part of a blurred picture."""

    def __init__(self, path: Path, kind: Name, true: Parameters, sigma: float) -> None:
        family = FAMILIES[kind]
        x_CHW = images.to_tensor(images.open_image(path.read_bytes()))
        seen_CHW = family.blur(true).bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
        y_CHW = noise.add_noise(seen_CHW, sigma, torch.Generator().manual_seed(0))
        upload = images.to_pil(y_CHW)
        self.kind = kind
        self.upload = images.Picture(upload)
        self.values = examine(self.upload).blur
        left, top, right, bottom = most_detailed(upload)
        self.x_CHW = x_CHW[:, top:bottom, left:right]
        self.picture = images.Picture(upload.crop((left, top, right, bottom)))
        self.y_CHW = images.to_tensor(self.picture)
        self.family = family
        self.sigma = max(noise.estimate_sigma(self.y_CHW), QUANTISATION)
        self.weight = SETS[path.parent.name][1]
        self.start, self.widest = first_guess(family, self.values)

    def as_used(self) -> Estimate:
        """What ``blind_blur`` takes for the blur of the upload; the diagnosis if it gives up."""
        parameters, converged = self.start, False
        with suppress(NothingToRestore):
            found = BlindBlur(kind=self.kind).find(Search(self.upload))
            parameters = tuple(getattr(found.operator, name) for name in self.family.names)
            converged = found.search is not None and found.search.converged
        path = [self.start, parameters]
        return Estimate(
            parameters=parameters, chains=[], path=path, deviation=0.0, converged=converged
        )

    def restored(self, blur: OperatorSpec) -> Tensor:
        """The total-variation restoration (1, 3, H, W)."""
        bound = blur.bind((3, *self.y_CHW.shape[1:]))
        likelihood = MeasurementObjective(bound, self.y_CHW, self.sigma, "l2")
        return total_variation_estimate(likelihood, self.y_CHW[None], steps=120, weight=self.weight)

    def restored_by(self, method: str, blur: OperatorSpec, tools: Restorers) -> Tensor:
        """The restoration (3, H, W) of one of :data:`METHODS`."""
        engine = tools.default
        if method == "maxim":
            assert tools.maxim is not None
            return tools.maxim(self.y_CHW)
        if method == "unsupervised_wiener":
            return wiener(self.y_CHW, blur)
        if method == "aps":
            result = run(
                RestoreSpec(operator=blur, prior=engine.spec.type), Inputs(self.picture), engine
            )
            assert isinstance(result, PictureResult)
            return result.pictures_BCHW[result.best]
        return self.restored(blur)[0]

    def psnr(self, x_CHW: Tensor) -> float:
        """Of a picture of the part, without the border."""
        inner = (..., slice(MARGIN, -MARGIN), slice(MARGIN, -MARGIN))
        return 10 * math.log10(4 / float((x_CHW - self.x_CHW)[inner].square().mean()))


def wiener(y_CHW: Tensor, blur: OperatorSpec) -> Tensor:
    """The restoration by a Wiener filter that estimates noise and regularity itself (Orieux et al.
    2010).
    """
    wide_CHW = F.pad(y_CHW[None], (REFLECTED,) * 4, mode="reflect")[0].double()
    kernel = kernel_of(blur).double().numpy()
    found = [unsupervised_wiener(each.numpy(), kernel, clip=False, rng=0)[0] for each in wide_CHW]
    inner = (..., slice(REFLECTED, -REFLECTED), slice(REFLECTED, -REFLECTED))
    return torch.from_numpy(np.stack(found))[inner].float().clamp(-1, 1)


def kernel_of(blur: OperatorSpec) -> Tensor:
    """What the blur makes of a point (97, 97)."""
    point = torch.zeros(1, 1, 97, 97)
    point[..., 48, 48] = 1
    return blur.bind((1, 97, 97))(point)[0, 0]
