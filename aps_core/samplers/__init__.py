"""Samplers, one file each, found by :func:`aps_core.registry.discover`;
:func:`aps_core.sampling.driver.sample` runs all of them.

Each file cites its paper, defines the sampler's settings with the paper's values as defaults, and
states what was adapted to a masked prior. Work is counted in decoder evaluations per picture: every
sampler appends one value to ``StepInfo.loss_curve`` for each, and the driver decodes once more at
the end. APS and G2D2 also run a backward pass through the decoder; SGDD and SVDD do not. SVDD needs
one forward pass of the prior per decode.
"""

import sys

from aps_core.registry import discover
from aps_core.samplers.base import SamplerSpec, Step

discover(sys.modules[__name__], "aps.samplers")

__all__ = ["SamplerSpec", "Step"]
