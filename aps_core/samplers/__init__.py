"""Samplers: one file each, found by :func:`aps_core.registry.discover`; all run by
:func:`aps_core.sampling.driver.sample`.

Each file cites its paper, holds the sampler's settings with the paper's values as defaults, and
says what had to change for a masked prior. Work is counted in decoder evaluations of one picture:
every sampler puts one value into ``StepInfo.loss_curve`` for each, and the driver decodes once more
at the end. A decode of APS and G2D2 also runs backwards, one of SGDD and SVDD does not; SVDD's
takes a forward of the prior.
"""

import sys

from aps_core.registry import discover
from aps_core.samplers.base import SamplerSpec, Step

discover(sys.modules[__name__], "aps.samplers")

__all__ = ["SamplerSpec", "Step"]
