"""Comparison of Dream's iterative unmasking with the original; the fixture defines the runs."""

import json
import re
from typing import cast

import pytest
import torch

from aps_core.text.config import TextConfig
from aps_core.text.filtering import filtered, sample_tokens
from aps_core.text.masked_lm import MaskedLM
from aps_core.text.sampling import diffusion_generate
from aps_core.types import TextPrior
from tests.parity.test_dream_lm import load

RECORDED = {"max_new_tokens", "steps", "temperature", "top_p", "top_k", "alg", "alg_temp"}


@pytest.fixture(scope="module")
def fixture(parity):
    return parity("dream_generate")


@pytest.fixture(scope="module")
def prior(fixture, tmp_path_factory) -> MaskedLM:
    return load(fixture, tmp_path_factory.mktemp("dream"))


def hook_of(fixture, run: str):
    """The hook that a run was recorded with, as described in the fixture; None for other runs."""
    if "hook" not in run:
        return None
    added, token, *steps = re.findall(r"[\d.]*\d", fixture.config()["fixture"]["hook_run"])

    def hook(step, ids_BS, logits_BSV):
        logits_BSV = logits_BSV.clone()
        if step in map(int, steps):
            logits_BSV[..., int(token)] += float(added)
        return logits_BSV

    return hook


def replay(fixture, prior, run: str):
    """Repeats a recorded run: (final ids, ids after each step, logits of step 0 after the hook)."""
    recorded = fixture.config()["fixture"]
    assert set(recorded["runs"][run]) <= RECORDED
    config = TextConfig(**recorded["runs"][run], eps=recorded["eps"])
    arrays = {
        key.partition("/")[2]: value
        for key, value in fixture.arrays().items()
        if key.startswith(f"{run}/")
    }
    hook, history, logits = hook_of(fixture, run), [], []

    def listen(step, ids_BS, logits_BSV):
        logits_BSV = hook(step, ids_BS, logits_BSV) if hook else logits_BSV
        logits.append(logits_BSV)
        return logits_BSV

    ids = diffusion_generate(
        prior,
        arrays["input_ids"],
        config,
        generator=torch.Generator().manual_seed(0),
        attention_BP=arrays.get("attention_mask"),
        logits_hook=listen,
        on_step=lambda info: history.append(info.state.z_BL),
    )
    return arrays, ids, torch.stack(history), logits[0]


def test_every_recorded_run_gives_the_same_tokens(fixture, prior):
    """Runs at temperature 0 are deterministic; seeded ones agree because random numbers are drawn
    in the release's order.
    """
    runs = fixture.config()["fixture"]["runs"]
    assert sum(settings["temperature"] == 0 for settings in runs.values()) >= 1
    for run in runs:
        arrays, ids, history, logits = replay(fixture, prior, run)
        assert torch.equal(history, arrays["history"]), run
        assert torch.equal(ids, arrays["sequences"]), run
        seen = arrays.get("attention_mask", torch.ones_like(arrays["input_ids"])).bool()
        seen = torch.nn.functional.pad(
            seen & seen.roll(1, dims=1), (0, ids.shape[1] - seen.shape[1]), value=True
        )
        torch.testing.assert_close(
            logits[seen], arrays["step0_shifted_logits"][seen], atol=2e-5, rtol=0
        )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("t0", {"alg": "maskgit_plus"}),
        ("t0_topp", {"alg": "maskgit_plus", "top_p": 0.9}),
        ("t0_margin", {"alg": "topk_margin"}),
        ("t0_negent", {"alg": "entropy"}),
        ("t0_negent_topp_topk", {"alg": "entropy", "top_p": 0.8, "top_k": 5}),
    ],
)
def test_token_and_confidence(fixture, name, settings):
    expected = fixture.arrays()
    config = TextConfig(**{"temperature": 0, "top_p": None, "top_k": None, **settings})
    confidence, token = sample_tokens(expected["sample_tokens/logits"], config, torch.Generator())
    assert torch.equal(token, expected[f"sample_tokens/{name}_x0"])
    torch.testing.assert_close(
        confidence, expected[f"sample_tokens/{name}_conf"], atol=2e-5, rtol=0
    )


def test_temperature_comes_before_the_nucleus(fixture):
    expected = fixture.arrays()
    logits = expected["sample_tokens/logits"]
    kept = (
        filtered(logits, TextConfig(temperature=0.2, top_p=0.95, top_k=None))
        > torch.finfo(logits.dtype).min
    )
    assert torch.equal(kept, expected["sample_tokens/top_p_0.95_after_temp_0.2_kept"])


class Fixed:
    """A prior that predicts token 0 everywhere with certainty."""

    mask_id, eos_id = 1, 2

    def logits(self, ids_BS, attention_BS=None):
        return torch.tensor([5.0, 0.0, 0.0]).expand(*ids_BS.shape, 3)


def test_tokens_revealed_in_every_step(fixture):
    """The first of 128 steps reveals nothing, the last one two tokens."""
    for name, counts in json.loads((fixture.folder / "transfer_counts.json").read_text()).items():
        steps, new = map(int, re.fullmatch(r"steps(\d+)_new(\d+)", name).groups())
        config = TextConfig(steps=steps, max_new_tokens=new, temperature=0, top_k=None)
        revealed, prior = [], cast(TextPrior, Fixed())
        diffusion_generate(
            prior,
            torch.zeros(1, 1, dtype=torch.long),
            config,
            generator=torch.Generator(),
            on_step=lambda info, r=revealed: r.append(int(info.decided_BS.sum())),  # type: ignore[misc]
        )
        assert revealed == counts, name
