"""Comparison of reward guidance with the authors' code, whose text part runs APS and EntRGi."""

from typing import cast

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import Qwen3Config, Qwen3ForSequenceClassification

from aps_core.checkpoints.networks import load_network
from aps_core.text.aps import RewardAscent, TextReward
from aps_core.text.chat import chat_of
from aps_core.text.config import TextConfig
from aps_core.text.filtering import filtered, sample_tokens
from aps_core.text.rewards import SequenceClassifierReward
from aps_core.text.rewards.alignment import Alignment
from aps_core.text.rewards.chat_template import ChatTemplate
from aps_core.text.rewards.classifier import ClassifierReward
from aps_core.text.sampling import diffusion_generate
from aps_core.types import TextPrior

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def fixture(parity):
    return parity("entrgi")


@pytest.fixture(scope="module")
def inputs(fixture):
    return fixture.arrays("inputs.npz")


@pytest.fixture(scope="module")
def settings(fixture):
    return fixture.config()


def numbers(ids_1S) -> str:
    return " ".join(map(str, ids_1S[0].tolist()))


@pytest.fixture(scope="module", params=[True, False], ids=["cached", "uncached"])
def reward(request, fixture, inputs, settings, tmp_path_factory):
    """The fixture's classifier. A tokenizer of numbers and a template of prefix and suffix give the
    reward the recorded ids.
    """
    shape = dict(settings["reward"])
    rope = {"rope_type": "default", "rope_theta": shape.pop("rope_theta")}
    config = Qwen3Config(**shape, rope_parameters=rope)
    network = Qwen3ForSequenceClassification
    model = load_network(fixture.folder, network, config, CPU, torch.float32)
    tokenizer = Tokenizer(models.WordLevel({str(i): i for i in range(64)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = ChatTemplate(
        f"{numbers(inputs['prefix_ids'])} {{{{ messages[1].content }}}}"
        f" {numbers(inputs['suffix_ids'])}"
    )
    known_V = torch.ones(settings["vocab"], dtype=torch.bool)
    ends_V = torch.arange(settings["vocab"]) == settings["eos_id"]
    alignment = Alignment(inputs["token_mapping"], known_V, ends_V, 1.0)
    model = ClassifierReward(model, tokenizer, alignment, template, reuse=request.param)
    return TextReward(model, SequenceClassifierReward(), chat_of("unused"))


def config_of(settings, **changes) -> TextConfig:
    names = ("inner_steps", "learning_rate", "temperature", "top_p", "top_k")
    return TextConfig(**{name: settings[name] for name in names}, **changes)


@pytest.mark.parametrize("name", ["expectation", "aps", "entrgi"])
def test_optimised_logits_and_rewards(fixture, inputs, settings, reward, name):
    config, start = config_of(settings, relaxation={"type": name}), settings["prompt_len"]
    ids_BL = inputs["trajectories"][:, start:]
    masked_BL = ids_BL == settings["mask_id"]
    inner = RewardAscent(reward, config)
    phi_BLV, rewards_MB = inner.run(
        inputs["base_logits"][:, start:], ids_BL, masked_BL, torch.Generator().manual_seed(0)
    )
    expected = fixture.arrays()
    torch.testing.assert_close(
        torch.tensor(rewards_MB), expected[f"{name}_rewards"], atol=1e-4, rtol=0
    )
    # Adam divides by the gradient's size, so a tiny gradient's rounding is visible in the logits
    torch.testing.assert_close(phi_BLV[masked_BL], expected[f"{name}_phi"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("alg", "confidence", "recorded"),
    [
        ("entropy", "initial", "entropy"),
        ("topk_margin", "guided", "margin"),
        ("maskgit_plus", "guided", "maskgit"),
        ("anchor", "guided", "anchor"),
    ],
)
def test_confidences(fixture, inputs, settings, alg, confidence, recorded):
    expected = fixture.arrays()
    masked_BS = inputs["trajectories"] == settings["mask_id"]
    found_N, _ = sample_tokens(
        expected["expectation_phi"],
        config_of(settings, alg=alg, confidence=confidence),
        torch.Generator().manual_seed(0),
        inputs["base_logits"][masked_BS],
    )
    torch.testing.assert_close(found_N, expected[f"confidence_{recorded}"], atol=1e-5, rtol=0)


def test_the_nucleus(fixture):
    expected = fixture.arrays()
    config = TextConfig(temperature=1, top_p=0.95, top_k=None)
    found = filtered(expected["expectation_phi"], config)
    assert torch.equal(found, expected["top_p_filtered"])


class Certain:
    """A prior that predicts token 0 everywhere."""

    mask_id, eos_id = 1, 2

    def logits(self, ids_BS, attention_BS=None):
        return torch.tensor([5.0, 0.0, 0.0]).expand(*ids_BS.shape, 3)


def test_number_of_tokens_revealed_in_every_step(settings):
    config = TextConfig(
        steps=settings["schedule_T"], max_new_tokens=settings["answer_len"], temperature=0
    )
    counts = []
    diffusion_generate(
        cast(TextPrior, Certain()),
        torch.zeros(1, 1, dtype=torch.long),
        config,
        generator=torch.Generator(),
        on_step=lambda info: counts.append(int(info.decided_BS.sum())),
    )
    assert counts == settings["schedule_counts"]
