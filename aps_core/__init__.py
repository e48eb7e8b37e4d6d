"""Anchored posterior sampling (APS) with discrete diffusion priors: the library.

    import aps_core as aps

    measurement = aps.Measurement("photo.png", operator={"type": "super_resolution", "factor": 4})
    aps.restore(measurement).image.save("restored.png")

Every name below is imported at its first use, so that importing the library costs nothing and
changes nothing.
"""

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_names

__version__ = "0.2.0"

if TYPE_CHECKING:
    from aps_core.aps import sample_aps
    from aps_core.identify.diagnosis import Diagnosis, diagnose
    from aps_core.losses import LossSpec
    from aps_core.losses.measurement import MeasurementLoss
    from aps_core.operators import Bound, OperatorSpec
    from aps_core.priors import ImagePriorSpec, PriorSpec, TextPriorSpec
    from aps_core.restoration.library import load_prior, restore
    from aps_core.restoration.measurement import Measurement
    from aps_core.restoration.result import Restoration
    from aps_core.samplers import SamplerSpec
    from aps_core.samplers.aps import APSConfig
    from aps_core.samplers.g2d2 import G2D2Config
    from aps_core.samplers.prior import PriorConfig
    from aps_core.samplers.sgdd import SGDDConfig
    from aps_core.samplers.svdd import SVDDConfig
    from aps_core.sampling.driver import sample
    from aps_core.sampling.problem import Problem, Step
    from aps_core.style_measures import StyleMeasureSpec
    from aps_core.types import (
        BoundOperator,
        Objective,
        Prior,
        Sample,
        SamplerState,
        StepInfo,
        TextPrior,
        Tokenizer,
    )
    from aps_core.verdict.fit import Fit

_HOMES = {
    "aps": ["sample_aps"],
    "identify.diagnosis": ["Diagnosis", "diagnose"],
    "verdict.fit": ["Fit"],
    "losses": ["LossSpec"],
    "losses.measurement": ["MeasurementLoss"],
    "restoration.measurement": ["Measurement"],
    "operators": ["Bound", "OperatorSpec"],
    "priors": ["ImagePriorSpec", "PriorSpec", "TextPriorSpec"],
    "restoration.library": ["load_prior", "restore"],
    "restoration.result": ["Restoration"],
    "samplers": ["SamplerSpec"],
    "samplers.aps": ["APSConfig"],
    "samplers.g2d2": ["G2D2Config"],
    "samplers.prior": ["PriorConfig"],
    "samplers.sgdd": ["SGDDConfig"],
    "samplers.svdd": ["SVDDConfig"],
    "sampling.driver": ["sample"],
    "sampling.problem": ["Problem", "Step"],
    "style_measures": ["StyleMeasureSpec"],
    "types": [
        "BoundOperator",
        "Objective",
        "Prior",
        "Sample",
        "SamplerState",
        "StepInfo",
        "TextPrior",
        "Tokenizer",
    ],
}

__all__ = [
    "APSConfig",
    "Bound",
    "BoundOperator",
    "Diagnosis",
    "Fit",
    "G2D2Config",
    "ImagePriorSpec",
    "LossSpec",
    "Measurement",
    "MeasurementLoss",
    "Objective",
    "OperatorSpec",
    "Prior",
    "PriorConfig",
    "PriorSpec",
    "Problem",
    "Restoration",
    "SGDDConfig",
    "SVDDConfig",
    "Sample",
    "SamplerSpec",
    "SamplerState",
    "Step",
    "StepInfo",
    "StyleMeasureSpec",
    "TextPrior",
    "TextPriorSpec",
    "Tokenizer",
    "diagnose",
    "load_prior",
    "restore",
    "sample",
    "sample_aps",
]

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
