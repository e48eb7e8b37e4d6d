"""Samplers compared with :func:`aps_core.aps.sample_aps`: same prior, same objective, same
signature, one file each.

Each file cites its paper, holds the sampler's settings with the paper's values as defaults, and
says what had to change for a masked prior. Work is counted in decoder evaluations of one picture:
every sampler puts one value into ``StepInfo.loss_curve`` for each, and decodes once more at the
end.
"""

from aps_core.samplers.g2d2 import G2D2Config, sample_g2d2
from aps_core.samplers.prior import sample_prior
from aps_core.samplers.sgdd import SGDDConfig, sample_sgdd
from aps_core.samplers.svdd import SVDDConfig, sample_svdd

__all__ = [
    "G2D2Config",
    "SGDDConfig",
    "SVDDConfig",
    "sample_g2d2",
    "sample_prior",
    "sample_sgdd",
    "sample_svdd",
]
