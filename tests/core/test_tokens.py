"""The same seeds give the same tokens as at commit 139611b, whose samplers wrote ``tokens.json``.

Everything runs in float64 on a world of four tokens, so that rounding, which differs from one CPU
to the next, decides no token.
"""

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch

from aps_core.aps import sample_aps
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.samplers.aps import APSConfig
from aps_core.samplers.g2d2 import G2D2Config
from aps_core.samplers.prior import PriorConfig
from aps_core.samplers.sgdd import SGDDConfig
from aps_core.samplers.svdd import SVDDConfig
from aps_core.sampling import driver
from aps_core.text.aps import sample_text_aps
from aps_core.text.config import TextConfig
from aps_core.theory.toy import BITS, CODES, GRID, LENGTH, ToyPrior
from aps_core.tokenizers.quantizers import VectorQuantizer
from aps_core.types import MASK

RECORDED = Path(__file__).parents[1] / "fixtures" / "tokens.json"
BATCH, SEEDS, SIGMA = 8, (0, 1, 2), 0.4


def aps(**settings):
    return sample_aps, APSConfig(steps=4, inner_steps=15, learning_rate=0.5, **settings)


CASES = {
    "aps": aps(),
    "aps, paper's temperature": aps(temperature=0.0),
    "aps_i": aps(remasking="prior"),
    "random_order": aps(remasking="random"),
    "aps, margin": aps(anchor_score="margin", anchor_temperature=2.0),
    "aps, entropy": aps(anchor_score="entropy"),
    "aps, bernoulli": aps(state_update="bernoulli"),
    "aps, adaptive": aps(inner="adaptive"),
    "aps, prior and entropy terms": aps(prior_weight=0.5, entropy_weight=0.2),
    "aps, no inner step": (sample_aps, APSConfig(steps=4, inner_steps=0)),
    "prior": (driver.sample, PriorConfig(steps=4)),
    "prior, likeliest": (driver.sample, PriorConfig(steps=4, order_temperature=0.0)),
    "g2d2": (driver.sample, G2D2Config(steps=4, inner_steps=6)),
    "sgdd": (driver.sample, SGDDConfig(steps=4, denoise_steps=3, mh_steps=12, alpha=0.5)),
    "svdd": (driver.sample, SVDDConfig(steps=4, candidates=5, temperature=1.0)),
    "svdd, best": (driver.sample, SVDDConfig(steps=4, candidates=5)),
}


def doubled(seed: int, vector_quantized: bool) -> ToyPrior:
    """The enumerable prior in float64, over sign codes or over a codebook of its own."""
    prior = ToyPrior(seed)
    prior.logits_PLK = prior.logits_PLK.double()
    tokenizer = prior.tokenizer
    tokenizer.colours_D3 = tokenizer.colours_D3.double()
    tokenizer.codebook_KD = tokenizer.codebook_KD.double()
    if vector_quantized:
        generator = torch.Generator().manual_seed(seed + 100)
        tokenizer.codebook_KD = torch.randn(CODES, BITS, generator=generator).double()
        tokenizer.quantizer = VectorQuantizer(tokenizer.codebook_KD)  # type: ignore[assignment]
    return prior


@contextmanager
def float64():
    """Random draws in float64 too; the worlds are made before, in float32."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def objective(prior: ToyPrior, seed: int, norm: Literal["l1", "l2"]) -> MeasurementObjective:
    generator = torch.Generator().manual_seed(seed + 200)
    matrix = torch.randn(3 * LENGTH, 4, generator=generator).double() / LENGTH**0.5
    operator = Bound(lambda x_BCHW: (x_BCHW.flatten(1) @ matrix)[..., None, None])
    truth_1L = torch.randint(CODES, (1, LENGTH), generator=generator)
    clean = operator(prior.tokenizer.decode(prior.tokenizer.codebook_KD[truth_1L], GRID))[0]
    y_CHW = clean + SIGMA * torch.randn(clean.shape, generator=generator).double()
    return MeasurementObjective(operator, y_CHW, SIGMA, norm)


def picture_tokens(case, seed: int, *, norm="l1", vector_quantized=False, **options):
    sampler, config = case
    prior = doubled(seed, vector_quantized)
    measured = objective(prior, seed, norm)
    with float64():
        return sampler(
            prior,
            measured,
            config,
            grid=GRID,
            generator=torch.Generator().manual_seed(seed),
            **{"batch": BATCH, **options},
        ).z_BL.tolist()


def text_tokens(guided: bool, seed: int) -> list[list[int]]:
    """Text APS on a table of logits whose rows depend on the token before."""
    generator = torch.Generator().manual_seed(seed + 300)
    vocabulary, mask = 7, 6
    table_VV = 2 * torch.randn(vocabulary, vocabulary, generator=generator).double()
    table_VV[:, mask] = -1e9
    worth_V = torch.randn(vocabulary, generator=generator).double()
    prior: Any = SimpleNamespace(
        mask_id=mask, eos_id=5, logits=lambda ids_BS, attention_BS=None: table_VV[ids_BS.roll(1, 1)]
    )

    def reward(ids_BL, masked_BL, phi_BLV, config, uniform):
        expected_BL = phi_BLV.softmax(-1) @ worth_V
        return torch.where(masked_BL, expected_BL, worth_V[ids_BL]).sum(1)

    worthy: Any = reward
    return sample_text_aps(
        prior,
        torch.tensor([[0, 1]] * 3),
        TextConfig(max_new_tokens=6, steps=4, temperature=1.0, learning_rate=0.5, top_k=None),
        generator=torch.Generator().manual_seed(seed),
        reward=worthy if guided else None,
    ).tolist()


def tokens(seed: int) -> dict[str, list[list[int]]]:
    """Everything that ``tokens.json`` holds for one seed."""
    kept_BL = torch.tensor([[2, MASK, MASK, 1]]).expand(BATCH, -1)
    made = {name: picture_tokens(case, seed) for name, case in CASES.items()}
    for name in ("aps", "aps_i", "random_order", "prior", "g2d2", "sgdd", "svdd"):
        made[f"{name}, l2"] = picture_tokens(CASES[name], seed, norm="l2")
        made[f"{name}, VQ"] = picture_tokens(CASES[name], seed, vector_quantized=True)
    made["aps, one sample"] = picture_tokens(CASES["aps"], seed, batch=1)
    for name in ("aps", "prior"):
        made[f"{name}, decided tokens"] = picture_tokens(CASES[name], seed, z_BL=kept_BL)
    made["text"], made["text, guided"] = text_tokens(False, seed), text_tokens(True, seed)
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seeds_give_the_same_tokens(seed):
    recorded = json.loads(RECORDED.read_text())[str(seed)]
    assert tokens(seed) == recorded
    assert len({json.dumps(drawn) for drawn in recorded.values()}) > 0.8 * len(recorded)
