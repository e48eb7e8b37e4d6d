"""Nucleus and top-k without sorting the vocabulary, against the full sort; the prior's forward pass
as a graph.
"""

from typing import Any

import pytest
import torch

from aps_core.text import filtering, sampling
from aps_core.text.config import TextConfig
from aps_core.text.filtering import CANDIDATES, FIXED_POINT, filtered, sample_tokens
from aps_core.text.sampling import PriorForward

VOCABULARY = (
    20_011  # prime: no share of it ends exactly at a threshold, where rounding would decide
)


def by_full_sort(logits_NV, config):
    """The release's order of operations, on every token."""
    lowest = torch.finfo(logits_NV.dtype).min
    if config.temperature > 0:
        logits_NV = logits_NV / config.temperature
    if config.top_p is not None and config.top_p < 1:
        order_NV = logits_NV.argsort(dim=-1, descending=True, stable=True)
        share_NV = (logits_NV.softmax(-1) * FIXED_POINT).long().gather(-1, order_NV)
        beyond_NV = (share_NV.cumsum(-1) > config.top_p * FIXED_POINT).roll(1, dims=-1)
        beyond_NV[:, :1] = False
        logits_NV = logits_NV.masked_fill(
            torch.zeros_like(beyond_NV).scatter(-1, order_NV, beyond_NV), lowest
        )
    if config.top_k is not None:
        least_N1 = logits_NV.topk(min(config.top_k, logits_NV.shape[-1]), dim=-1).values[:, -1:]
        logits_NV = logits_NV.masked_fill(logits_NV < least_N1, lowest)
    return logits_NV


def tables(kind, rows=32):
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, VOCABULARY, generator=random)
    return {
        "sharp": logits * 4,  # the nucleus holds some hundred tokens at most
        "flat": logits * 0.05,  # it holds most of the vocabulary
        "bfloat16": (logits * 2).bfloat16().float(),  # ties everywhere
        "coarse": (logits * 2).round(),  # ties beyond every candidate
        "constant": torch.zeros(rows, VOCABULARY),
    }[kind]


@pytest.mark.parametrize("kind", ["sharp", "flat", "bfloat16", "coarse", "constant"])
@pytest.mark.parametrize("top_p", [None, 0.5, 0.95])
@pytest.mark.parametrize("top_k", [None, 50])
@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_it_keeps_what_a_full_sort_keeps(kind, top_p, top_k, temperature):
    config = TextConfig(temperature=temperature, top_p=top_p, top_k=top_k)
    logits = tables(kind)
    assert torch.equal(filtered(logits, config), by_full_sort(logits, config))


def test_the_published_settings_sort_no_vocabulary(monkeypatch):
    """At the paper's temperature, top-p and top-k the candidates settle every row."""
    widths = []
    sort = torch.Tensor.sort
    monkeypatch.setattr(
        torch.Tensor,
        "sort",
        lambda self, *a, **k: widths.append(self.shape[-1]) or sort(self, *a, **k),
    )
    for kind in ("sharp", "flat", "bfloat16"):
        filtered(tables(kind), TextConfig())
    assert set(widths) == {CANDIDATES}
    filtered(tables("constant"), TextConfig())
    assert max(widths) == VOCABULARY  # only ties need it


def test_draws_and_confidences_are_the_full_sorts(monkeypatch):
    def drawn(alg):
        generator = torch.Generator().manual_seed(1)
        return sample_tokens(tables("bfloat16"), TextConfig(alg=alg), generator)

    algs = ("entropy", "maskgit_plus", "topk_margin")
    ours = [drawn(alg) for alg in algs]
    monkeypatch.setattr(filtering, "filtered", by_full_sort)
    for (confidence, token), (expected, expected_token) in zip(
        ours, (drawn(alg) for alg in algs), strict=True
    ):
        assert torch.equal(token, expected_token)
        assert torch.equal(confidence, expected)


class Counting:
    """A prior whose logits show the ids it saw."""

    mask_id = eos_id = 0
    calls = 0

    def logits(self, ids_BS, attention_BS=None):
        self.calls += 1
        return torch.nn.functional.one_hot(ids_BS, 8).float()


def replayed(step):
    """What a capture does to a step: warm-up, then the same kernels on the same memory."""
    step()
    kept = step.__self__
    inputs, output = kept.ids_BS, kept.logits_BSV

    def replay():
        output.copy_(torch.nn.functional.one_hot(inputs, 8).float())

    return replay


def test_the_forward_pass_is_captured_once_and_fed_anew(monkeypatch):
    monkeypatch.setattr(sampling, "captured", replayed)
    prior: Any = Counting()
    forward = PriorForward(prior, None, graph=True)
    for ids in (torch.tensor([[1, 0, 0]]), torch.tensor([[1, 5, 0]]), torch.tensor([[1, 5, 7]])):
        assert torch.equal(forward(ids).argmax(-1), ids)
    assert prior.calls == 1


@pytest.mark.parametrize(("graph", "attention"), [(None, None), (True, torch.ones(1, 3))])
def test_without_a_gpu_or_with_padding_it_runs_as_it_is(monkeypatch, graph, attention):
    monkeypatch.setattr(sampling, "captured", lambda _: pytest.fail("captured"))
    prior: Any = Counting()
    forward = PriorForward(prior, attention, graph)
    for _ in range(2):
        forward(torch.tensor([[1, 0, 0]]))
    assert prior.calls == 2
