"""The paper's experiments on pictures, and further ablations, each as a list of runs. Runs shared
by several experiments are computed once.

Where the paper fixes a number for its own prior (M = 100), the experiment scales the prior's
recommended settings: M takes 0, 1/10, 1/2, 1 and 2 times the recommended value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aps_core.checkpoints import checkpoint_cache
from aps_core.evaluation.cases import TASKS
from aps_core.evaluation.run import Plan, Variant
from aps_core.operators import OperatorSpec
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig

STEP_SHARES = (0.0, 0.1, 0.5, 1.0, 2.0)
WEIGHTS = (0.0, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1)
SIGMAS = (0.01, 0.02, 0.03, 0.04, 0.05)
ABLATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"anchor_score": "confidence"},
    {"anchor_score": "entropy"},
    {"anchor_temperature": 0.0},
    {"anchor_temperature": 1.0},
    {"anchor_temperature": 5.0},
    {"remasking": "prior"},
    {"remasking": "prior", "anchor_temperature": 0.0},
    {"remasking": "random"},
    {"state_update": "bernoulli"},
    {"temperature": 1.0},
    {"prior_weight": 0.02},
    {"prior_weight": 0.1},
    {"entropy_weight": 0.02},
    {"inner": "adaptive"},
)
"""Changes to the recommended settings, one or two related fields each. :func:`ablation_changes`
adds learning rates and step counts.
"""
APS, G2D2 = Variant("aps"), Variant("g2d2")


@dataclass(frozen=True)
class Experiment:
    """One table of the paper."""

    name: str
    title: str
    plan: Plan


def experiments(
    config: APSConfig, protocols: tuple[str, ...] = ("native", "upsampled"), seed: int = 0
) -> list[Experiment]:
    """All experiments on pictures for settings ``config``. Only the first two use every protocol.

    The paper's nonlinear blur is omitted if its network's weights are not installed; a blur without
    weights is always included.
    """

    def of(
        name: str,
        title: str,
        tasks: tuple[str, ...],
        variants: tuple[Variant, ...],
        **where: tuple[float, ...],
    ) -> Experiment:
        chosen = protocols if name in ("linear", "general") else protocols[:1]
        return Experiment(name, title, Plan(tasks, variants, chosen, seed=seed, **where))

    every = tuple(
        Variant(name) for name in SamplerSpec.family if not SamplerSpec.named(name).needs_denoiser
    )
    blurs = tuple(task for task in ("nonlinear_blur", "saturating_blur") if available(task))
    return [
        of(
            "linear",
            "Super resolution and Gaussian deblurring",
            ("sr4", "gaussian_blur"),
            every,
        ),
        of(
            "general",
            "General inverse problems",
            ("inpainting70", "motion_blur", "hdr", *blurs),
            every,
        ),
        of(
            "steps",
            "Effect of optimization steps",
            ("sr4",),
            tuple(Variant("aps", {"inner_steps": inner}) for inner in inner_steps(config)),
        ),
        of(
            "perceptual",
            "Perceptual loss coefficient",
            ("sr4",),
            tuple(Variant("aps", loss={"perceptual_weight": weight}) for weight in WEIGHTS),
        ),
        of(
            "same_prior",
            "Identical discrete diffusion prior",
            ("sr4",),
            (*perceptual_g2d2().values(), APS),
        ),
        of("noise", "Robustness to measurement noise", ("sr4",), (G2D2, APS), sigmas=SIGMAS),
        of(
            "ablations",
            "Ablations (not in the paper)",
            ("sr4", "inpainting70"),
            (
                *(Variant("aps", changes) for changes in ablation_changes(config)),
                Variant("aps", loss={"norm": "l2"}),
            ),
        ),
    ]


def inner_steps(config: APSConfig) -> tuple[int, ...]:
    """The values of M in the sweep."""
    return tuple(round(share * config.inner_steps) for share in STEP_SHARES)


def ablation_changes(config: APSConfig) -> tuple[dict[str, Any], ...]:
    """All changes for settings ``config``: learning rate divided and multiplied by three, threefold
    work, and half and twice the reverse steps with the same work.
    """
    steps, inner, rate = config.steps, config.inner_steps, config.learning_rate
    return (
        *ABLATIONS,
        {"learning_rate": rate / 3},
        {"learning_rate": rate * 3},
        {"learning_rate": rate / 3, "inner_steps": inner * 3},
        {"steps": max(1, steps // 2), "inner_steps": inner * 2},
        {"steps": steps * 2, "inner_steps": inner // 2},
    )


def perceptual_g2d2() -> dict[str, Variant]:
    """G2D2 with the paper's perceptual weights, by the paper's row names."""
    return {
        "G2D2": Variant("g2d2", loss={"perceptual_weight": 0.0}),
        "G2D2, perceptual 1e-3": Variant("g2d2", loss={"perceptual_weight": 1e-3}),
        "G2D2, perceptual 1e-2": Variant("g2d2", loss={"perceptual_weight": 1e-2}),
    }


def available(task: str) -> bool:
    """Whether the weights an operator needs are installed. Most operators need none."""
    return all(
        checkpoint_cache.check(name).state == "present"
        for name in OperatorSpec.named(str(TASKS[task]["type"])).weights
    )
