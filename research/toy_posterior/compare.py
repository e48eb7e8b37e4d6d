"""Distance of each sampler's distribution from the exact posterior of an enumerable problem.

    python -m research.toy_posterior.compare

Computes the total variation distance in [0, 1] between N samples and the posterior over 256
pictures of :class:`aps_core.theory.toy.ToyWorld` (four tokens of four codes, a linear measurement
of four numbers), averaged over worlds, at three noise levels. The row ``exact`` samples from the
posterior itself and shows the error due to finite N. One token is decided per reverse step, so that
ancestral sampling from the prior's conditionals is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

import torch
from torch import Generator, Tensor

from aps_core.aps import sample_aps
from aps_core.samplers.aps import APSConfig
from aps_core.samplers.carried_evidence import CarriedEvidence
from aps_core.samplers.g2d2 import G2D2Config
from aps_core.samplers.prior import PriorConfig
from aps_core.samplers.sgdd import SGDDConfig
from aps_core.samplers.svdd import SVDDConfig
from aps_core.sampling import driver
from aps_core.theory.toy import GRID, LENGTH, ToyWorld
from research.common.arguments import parser_of

Draw = Callable[[ToyWorld, int, Generator], Tensor]

APS = APSConfig(
    steps=LENGTH,
    inner_steps=30,
    learning_rate=0.1,
    guidance_scale=0.0,
    temperature=1.0,
)


def _sampler(sampler: Callable[..., object], config: object) -> Draw:
    def draw(world: ToyWorld, count: int, generator: Generator) -> Tensor:
        z_BL: Tensor = sampler(
            world.prior, world.objective, config, grid=GRID, generator=generator, batch=count
        ).z_BL  # type: ignore[attr-defined]
        return z_BL

    return draw


def _exact(world: ToyWorld, count: int, generator: Generator) -> Tensor:
    return world.prior.states_SL[
        torch.multinomial(world.posterior_S, count, replacement=True, generator=generator)
    ]


def _aps(**changes: object) -> Draw:
    return _sampler(sample_aps, APSConfig(**{**APS.model_dump(), **changes}))


def _with_prior_term(world: ToyWorld, count: int, generator: Generator) -> Tensor:
    """APS with the prior term of Eq. (qe), weighted by the noise."""
    temperature = world.objective.temperature
    assert temperature is not None
    return _aps(prior_weight=float(temperature))(world, count, generator)


def _carried(**changes: object) -> Draw:
    settings = {"steps": LENGTH, "inner_steps": 30, "learning_rate": 0.1, "start": 0.0, **changes}
    common = {"guidance_scale": 0.0, "temperature": 1.0}
    return _sampler(driver.sample, CarriedEvidence.model_validate({**common, **settings}))


SAMPLERS: dict[str, Draw] = {
    "exact": _exact,
    "prior alone": _sampler(driver.sample, PriorConfig(steps=LENGTH, guidance_scale=0.0)),
    "APS (II)": _aps(),
    "APS-I": _aps(remasking="prior"),
    "APS, random order": _aps(remasking="random"),
    "APS, Algorithm 1 (nothing drawn)": _aps(temperature=0.0),
    "APS, learning rate 1 (the paper's)": _aps(learning_rate=1.0),
    "APS with the prior term": _with_prior_term,
    "APS, one step": _aps(steps=1, inner_steps=30 * LENGTH),
    "carried evidence": _carried(),
    "carried evidence, KL to the prior": _carried(prior_weight=1.0),
    "carried evidence, KL, started at the estimate": _carried(prior_weight=1.0, start=1.0),
    "G2D2": _sampler(
        driver.sample,
        G2D2Config(steps=LENGTH, inner_steps=30, learning_rate=0.3, kl_weight=0.1, kl_decades=0.0),
    ),
    "SGDD": _sampler(driver.sample, SGDDConfig(steps=30, denoise_steps=LENGTH, mh_steps=30)),
    "SGDD, tight coupling": _sampler(
        driver.sample, SGDDConfig(steps=60, denoise_steps=LENGTH, mh_steps=60, alpha=1.0)
    ),
    "SVDD, best of 30": _sampler(driver.sample, SVDDConfig(steps=LENGTH, candidates=30)),
    "SVDD, drawn by likelihood": _sampler(
        driver.sample, SVDDConfig(steps=LENGTH, candidates=30, temperature=1.0)
    ),
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--worlds", type=int, default=5)
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.1, 0.5, 2.0])
    args = parser.parse_args()
    print("| sampler | " + " | ".join(f"sigma {sigma:g}" for sigma in args.sigmas) + " |")
    print("|---" * (len(args.sigmas) + 1) + "|")
    for name, draw in SAMPLERS.items():
        cells = []
        for sigma in args.sigmas:
            distances = []
            for seed in range(args.worlds):
                world = ToyWorld(seed, sigma)
                distances.append(
                    world.total_variation(
                        draw(world, args.samples, torch.Generator().manual_seed(seed))
                    )
                )
            cells.append(f"{mean(distances):.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
