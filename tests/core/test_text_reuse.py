"""Decoding in blocks, and keys and values reused between reverse steps.

The prior is Dream's network at the parity fixture's scale: its released weights, tiny.
"""

import pytest
import torch

from aps_core.errors import InvalidSpec
from aps_core.text.blocks import blocks_of
from aps_core.text.config import TextConfig
from aps_core.text.masked_lm import MaskedLM
from aps_core.text.reuse import ReusingForward
from aps_core.text.sampling import diffusion_generate
from tests.parity.conftest import FOLDER, Fixture
from tests.parity.test_dream_lm import load

CONFIG = TextConfig(max_new_tokens=12, steps=12, temperature=1.0, top_k=None)
BLOCKS = {"block_length": 4}
EVERY_STEP = {"refreshes": 12}
ROWS, PROMPT, LENGTH = 2, 5, 17


@pytest.fixture(scope="module", params=[True, False], ids=["shifted", "unshifted"])
def prior(request, tmp_path_factory) -> MaskedLM:
    """Dream, and the same network read as LLaDA's is, without the shift."""
    loaded = load(Fixture(FOLDER / "dream_lm"), tmp_path_factory.mktemp("dream"))
    for weight in loaded.model.parameters():
        weight.data.mul_(2)  # far from uniform
    loaded.shifted = request.param
    return loaded


def answer(prior, padded=False, resume=None, states=None, **settings):
    """Ids, and the last step's work and error."""
    steps, seen = [], torch.ones(ROWS, PROMPT, dtype=torch.long)
    if padded:
        seen[1, :2] = 0

    def listen(info):
        steps.append(info)
        if states is not None:
            states.append(info.state)

    ids = diffusion_generate(
        prior,
        torch.arange(3, 3 + ROWS * PROMPT).view(ROWS, PROMPT),
        CONFIG.model_copy(update=settings),
        generator=torch.Generator().manual_seed(0 if resume is None else 99),
        attention_BP=seen if padded else None,
        on_step=listen,
        resume=resume,
        independent=True,
    )
    return ids, steps


def test_blocks_share_tokens_and_steps():
    config = TextConfig(max_new_tokens=10, steps=7, block_length=4)
    blocks = blocks_of(config)
    assert [(block.start, block.end) for block in blocks] == [(0, 4), (4, 8), (8, 10)]
    assert [(block.first, block.last) for block in blocks] == [(0, 2), (2, 4), (4, 7)]
    (whole,) = blocks_of(config.model_copy(update={"block_length": None}))
    assert (whole.start, whole.end, whole.first, whole.last) == (0, 10, 0, 7)
    with pytest.raises(InvalidSpec, match="10 blocks"):
        blocks_of(config.model_copy(update={"block_length": 1}))


@pytest.mark.parametrize("alg", ["entropy", "origin"])
def test_a_block_is_decided_before_the_next_begins(prior, alg):
    _, steps = answer(prior, **BLOCKS, alg=alg)
    for number, info in enumerate(steps):
        places = info.decided_BS.nonzero()[:, 1] - PROMPT
        assert ((places >= number // 4 * 4) & (places < number // 4 * 4 + 4)).all()
    assert sum(int(info.decided_BS.sum()) for info in steps) == ROWS * 12


@pytest.mark.parametrize("reuse", ["prefix", "dual"])
@pytest.mark.parametrize("padded", [False, True], ids=["plain", "padded"])
def test_refreshing_in_every_step_is_exact(prior, reuse, padded):
    for order in ({}, BLOCKS):
        exact, _ = answer(prior, padded, **order)
        refreshed, _ = answer(prior, padded, reuse=reuse, **EVERY_STEP, **order)
        assert torch.equal(refreshed, exact)


@pytest.mark.parametrize("reuse", ["prefix", "dual"])
def test_only_the_window_is_computed(prior, reuse, monkeypatch):
    """The network is given the window's positions alone, and the report counts them."""
    widths, forward = [], prior.model.model.forward

    def count(*args, **kwargs):
        widths.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    monkeypatch.setattr(prior.model.model, "forward", count)
    _, steps = answer(prior, reuse=reuse, refreshes=1, **BLOCKS)
    expected = []
    for start in (PROMPT, PROMPT + 4, PROMPT + 8):
        end = LENGTH if reuse == "prefix" else start + 4
        expected += [LENGTH, *[end - start + prior.shifted] * 3]
    assert widths == expected
    report = steps[-1].reuse
    assert (report.computed, report.exact) == (ROWS * sum(widths), ROWS * LENGTH * 12)
    assert report.summary()["mean_distance"] is None
    assert not prior.model.config.use_cache


def test_the_reported_error_is_the_distance_to_exact_predictions(prior):
    """Two refreshes per block of four steps: the third step compares what it would have predicted
    from the first step's keys with a plain forward pass.
    """
    states: list = []
    _, steps = answer(prior, reuse="dual", states=states, **BLOCKS)
    before_BS = states[1].z_BL
    masked_BS = before_BS == prior.mask_id
    masked_BS[:, PROMPT + 4 :] = False
    config = CONFIG.model_copy(update={**BLOCKS, "reuse": "dual", "refreshes": 1})
    forward, block = ReusingForward(prior, config, before_BS, None), blocks_of(config)[0]
    first_BS = before_BS.clone()
    first_BS[:, PROMPT:] = prior.mask_id
    forward(first_BS, 0, block)
    reused_NV = forward(before_BS, 2, block)[masked_BS].softmax(-1)
    exact_NV = prior.logits(before_BS)[masked_BS].softmax(-1)
    distance = float((reused_NV - exact_NV).abs().sum()) / 2
    assert steps[1].reuse.compared == 0
    assert steps[2].reuse.compared == len(exact_NV) > 0
    assert steps[2].reuse.distance == pytest.approx(distance, abs=1e-4)
    assert distance > 0.01


@pytest.mark.parametrize("reuse", ["prefix", "dual"])
def test_a_resumed_run_gives_the_same_tokens(prior, reuse):
    states: list = []
    whole, _ = answer(prior, reuse=reuse, refreshes=1, states=states, **BLOCKS)
    for stop in (0, 4, 5, 7):
        again, _ = answer(prior, reuse=reuse, refreshes=1, resume=states[stop], **BLOCKS)
        assert torch.equal(again, whole)


def test_a_prior_of_another_class_cannot_reuse(prior):
    class Other:
        mask_id = eos_id = 0

    with pytest.raises(InvalidSpec, match="Other"):
        answer(Other(), reuse="prefix")
