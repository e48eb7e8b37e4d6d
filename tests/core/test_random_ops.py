"""Random draws of codes: frequencies, impossible codes, reproducibility."""

import pytest
import torch

from aps_core.sampling.random_ops import categorical, gumbel_perturbed

P = torch.tensor([0.0, 0.3, 0.0, 0.45, 0.2, 0.05, 0.0])
MANY = 100_000


def frequencies(codes_N):
    return torch.bincount(codes_N, minlength=len(P)) / len(codes_N)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_codes_are_drawn_with_their_probability(scale):
    drawn_N = categorical((P * scale).expand(MANY, -1), torch.Generator().manual_seed(0))
    error = (P * (1 - P) / MANY).sqrt()
    assert ((frequencies(drawn_N) - P).abs() <= 4 * error).all()


@pytest.mark.parametrize(("extreme", "code"), [(0.0, 1), (1 - 2**-24, 5)])
@pytest.mark.parametrize("scale", [1.0, 1 / 3, 0.7, 1e-30])
def test_impossible_codes_are_never_drawn(monkeypatch, extreme, code, scale):
    monkeypatch.setattr(
        "aps_core.sampling.random_ops.torch.rand",
        lambda shape, **options: torch.full(shape, extreme),
    )
    assert categorical((P * scale)[None], torch.Generator()).tolist() == [code]


def test_draws_are_reproducible_and_rows_independent():
    p_NK = torch.full((64, 4096), 1 / 4096)
    first, again, other = (
        categorical(p_NK, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(first.unique()) > 32


def test_gumbel_max_samples_the_distribution():
    logits_NK = P.log().expand(MANY, -1)
    drawn_N = gumbel_perturbed(logits_NK, 1.0, torch.Generator().manual_seed(0)).argmax(-1)
    assert ((frequencies(drawn_N) - P).abs() <= 4 * (P * (1 - P) / MANY).sqrt()).all()
    assert torch.equal(gumbel_perturbed(logits_NK, 0.0, torch.Generator()), logits_NK)
