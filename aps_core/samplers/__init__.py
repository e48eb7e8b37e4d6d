"""Samplers, one file each, found by :func:`aps_core.registry.discover`;
:func:`aps_core.sampling.driver.sample` runs all of them.

Each file cites its paper, defines the sampler's settings with the paper's values as defaults, and
states what was adapted to a masked prior. Work is counted in evaluations of the objective per
picture: every sampler appends one value to ``StepInfo.loss_curve`` for each. Where samplers search
in tokens, each needs a decode, and the driver decodes once more at the end; ``plug_and_play``
searches in pixels and needs none. All but SGDD and SVDD also take gradients. SVDD needs one forward
pass of the prior per evaluation.
"""

import sys

from aps_core.registry import discover
from aps_core.samplers.base import SamplerSpec

discover(sys.modules[__name__], "aps.samplers")

__all__ = ["SamplerSpec"]
