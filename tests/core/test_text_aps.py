"""Anchored posterior sampling of text with tiny random networks in the published formats."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from aps_core.errors import InvalidSpec, SamplingCancelled, WeightsInvalid
from aps_core.priors.dream.network import DreamConfig, load_dream
from aps_core.text.aps import RewardAscent, TextReward, sample_text_aps
from aps_core.text.chat import chat_of
from aps_core.text.config import TextConfig
from aps_core.text.rewards import LogLikelihoodReward, YesNoReward
from aps_core.text.rewards.alignment import Alignment
from aps_core.text.rewards.loading import load_reward
from aps_core.text.sampling import diffusion_generate

CPU = torch.device("cpu")
WORDS = [f"w{i}" for i in range(40)]
PRIOR_VOCABULARY = [*WORDS, "<mask>", "<end>", "Yes", "No"]
REWARD_VOCABULARY = ["No", "Yes", *reversed(WORDS), "<stop>", "<thought>"]
"""A vocabulary with the same words under other ids, another end token, no mask token, and a token
that the prior does not have.
"""
CONFIG = TextConfig(max_new_tokens=12, steps=6, top_k=None)
ASKED = chat_of("w7 w8")
KINDS = [YesNoReward(rubric="{prompt} {answer} w3"), LogLikelihoodReward(layout="{prompt} w5")]
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
}


def tokenizer(vocabulary: list[str]) -> Tokenizer:
    from tokenizers import pre_tokenizers

    made = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=vocabulary[0])
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def save(folder: Path, model, config: dict, vocabulary: list[str]) -> Path:
    folder.mkdir()
    tensors = {
        k: v.contiguous()
        for k, v in model.state_dict().items()
        if not (config["tie_word_embeddings"] and k == "lm_head.weight")
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def prior(tmp_path_factory):
    torch.manual_seed(0)
    # wider than its tokenizer, as published models are
    config = DreamConfig(
        **SHAPE,
        vocab_size=48,
        rope_theta=1e4,
        mask_token_id=40,
        eos_token_id=41,
        prompt_format="w1 {prompt} w2",
    )
    model = Qwen2ForCausalLM(config.qwen2())
    for weight in model.parameters():
        weight.data.mul_(3)  # far from uniform
    return load_dream(
        save(
            tmp_path_factory.mktemp("prior") / "dream", model, config.model_dump(), PRIOR_VOCABULARY
        ),
        CPU,
        torch.float32,
    )


@pytest.fixture(scope="module")
def reward_folder(tmp_path_factory):
    torch.manual_seed(1)
    config = Qwen3Config(
        **SHAPE, vocab_size=44, head_dim=16, eos_token_id=42, tie_word_embeddings=True
    )
    return save(
        tmp_path_factory.mktemp("reward") / "qwen3",
        Qwen3ForCausalLM(config),
        config.to_dict(),
        REWARD_VOCABULARY,
    )


@pytest.fixture(scope="module")
def reward_model(prior, reward_folder):
    return load_reward(reward_folder, prior, CPU, torch.float32)


def prompt_of(prior, rows: int = 1) -> torch.Tensor:
    return torch.tensor([prior.encode("w7 w8")]).expand(rows, -1)


def draw(prior, config=CONFIG, rows=1, seed=0, **arguments):
    return sample_text_aps(
        prior,
        prompt_of(prior, rows),
        config,
        generator=torch.Generator().manual_seed(seed),
        **arguments,
    )


def noise():
    return torch.Generator().manual_seed(7)


def test_without_guidance_sampling_equals_dreams(prior, reward_model):
    plain = diffusion_generate(
        prior, prompt_of(prior), CONFIG, generator=torch.Generator().manual_seed(0)
    )
    reward = TextReward(reward_model, KINDS[0], ASKED)
    assert torch.equal(draw(prior), plain)
    assert torch.equal(
        draw(prior, CONFIG.model_copy(update={"inner_steps": 0}), reward=reward), plain
    )
    assert not torch.equal(
        draw(prior, CONFIG.model_copy(update={"inner_steps": 20}), reward=reward), plain
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
def test_guidance_raises_the_reward(prior, reward_model, kind):
    reward = TextReward(reward_model, kind, ASKED)
    config = CONFIG.model_copy(update={"inner_steps": 8, "learning_rate": 0.5, "temperature": 1.0})
    start, curves = len(prior.encode("w7 w8")), []
    unguided_B = reward.of(draw(prior, config, rows=32)[:, start:], [])
    guided_B = reward.of(
        draw(
            prior,
            config,
            rows=32,
            reward=reward,
            on_step=lambda info: curves.append(info.rewards_MB),
        )[:, start:],
        [],
    )
    assert guided_B.mean() > unguided_B.mean() + unguided_B.std() / 2
    assert all(len(curve) == 8 for curve in curves)
    assert all(len(rewards_B) == 32 for rewards_B in curves[0])
    assert sum(curves[0][-1]) > sum(curves[0][0])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
def test_only_the_logits_get_gradients(prior, reward_model, kind):
    reward = TextReward(reward_model, kind, ASKED)
    ids_BL = torch.tensor([[3, 40, 40, 5]])
    phi_BLV = torch.randn(1, 4, 48, generator=torch.Generator().manual_seed(0)).requires_grad_()
    reward(ids_BL, ids_BL == 40, phi_BLV, CONFIG).sum().backward()
    undecided_NV = phi_BLV.grad[0, 1:3]
    assert (undecided_NV[:, :40].abs() > 0).all()
    assert (undecided_NV[:, [40, *range(44, 48)]] == 0).all(), (
        "the mask and the unused rows mean nothing to the reward model"
    )
    assert not phi_BLV.grad[0, [0, 3]].any(), "nor do tokens that are decided"
    for model in (reward_model.model, prior.model):
        assert all(
            not weight.requires_grad and weight.grad is None for weight in model.parameters()
        )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
def test_the_reward_is_that_of_the_discrete_answer(prior, reward_model, kind):
    """Straight-through estimator: the value depends only on the most likely tokens."""
    reward = TextReward(reward_model, kind, ASKED)
    ids_BL = torch.tensor([[3, 40, 40, 5]])
    phi_BLV = torch.zeros(1, 4, 48)
    phi_BLV[0, 1, 9] = phi_BLV[0, 2, 17] = 1.0
    torch.testing.assert_close(
        reward(ids_BL, ids_BL == 40, phi_BLV, CONFIG),
        reward.of(torch.tensor([[3, 9, 17, 5]]), []),
        atol=1e-5,
        rtol=1e-5,
    )


def test_log_likelihood_matches_the_model(prior, reward_model):
    """Equals a plain forward pass over ids: mean over the answer including its end token."""
    reward = TextReward(reward_model, KINDS[1], ASKED)
    answer = torch.tensor([[3, 9, 41, 5]])  # the prior's end, then something that does not count
    ids = torch.tensor(
        [[REWARD_VOCABULARY.index(word) for word in ("w7", "w8", "w5", "w3", "w9", "<stop>")]]
    )
    log_p = reward_model.model(ids).logits.log_softmax(-1)
    expected = sum(log_p[0, i, ids[0, i + 1]] for i in (2, 3, 4)) / 3
    torch.testing.assert_close(reward.of(answer, [])[0], expected, atol=1e-5, rtol=0)


def test_yes_no_ignores_tokens_after_the_answers_end(prior, reward_model):
    reward = TextReward(reward_model, KINDS[0], ASKED)
    short, longer = torch.tensor([[3, 9, 41, 5, 6]]), torch.tensor([[3, 9, 41, 11, 41]])
    torch.testing.assert_close(reward.of(short, []), reward.of(longer, []))
    ids = torch.tensor([[REWARD_VOCABULARY.index(word) for word in ("w7", "w8", "w3", "w9", "w3")]])
    logits = reward_model.model(ids).logits[0, -1]
    torch.testing.assert_close(reward.of(short, [])[0], logits[1] - logits[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
def test_an_inner_step_can_be_captured(prior, reward_model, kind):
    """It does not synchronise, reads from fixed addresses, and is reset in every reverse step."""
    inner = RewardAscent(TextReward(reward_model, kind, ASKED), CONFIG)
    first, second = (torch.tensor([[3, 40, other, 5]]) for other in (40, 6))
    prior_BLV = torch.randn(1, 4, 48, generator=torch.Generator().manual_seed(0))
    inner.run(prior_BLV, first, first == 40, noise())
    addresses = {name: tensor.data_ptr() for name, tensor in inner.tensors.items()}
    with Calls() as calls:
        inner()
    # the last: a tensor made of Python's numbers
    waits = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "masked_scatter",
        "lift_fresh",
    )
    assert not [name for name in calls.names if any(wait in name for wait in waits)]
    after, _ = inner.run(prior_BLV, second, second == 40, noise())
    assert {name: tensor.data_ptr() for name, tensor in inner.tensors.items()} == addresses
    alone, _ = RewardAscent(TextReward(reward_model, kind, ASKED), CONFIG).run(
        prior_BLV, second, second == 40, noise()
    )
    assert torch.equal(after, alone)
    assert torch.equal(after[second != 40], prior_BLV[second != 40]), (
        "decided tokens stay as they were"
    )
    assert not torch.equal(after[second == 40], prior_BLV[second == 40])


class Calls(TorchDispatchMode):
    """Records the names of called operators."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("stop", [1, 4])
def test_a_resumed_run_gives_the_same_tokens(prior, reward_model, stop):
    reward = TextReward(reward_model, KINDS[0], ASKED)
    config = CONFIG.model_copy(update={"temperature": 1.0})
    states = []
    whole = draw(
        prior, config, rows=2, reward=reward, on_step=lambda info: states.append(info.state)
    )
    again = draw(prior, config, rows=2, seed=99, reward=reward, resume=states[stop])
    assert torch.equal(whole, again)


def test_a_run_can_be_stopped(prior):
    with pytest.raises(SamplingCancelled, match="step 2 of 6"):
        draw(prior, on_step=lambda info: info.state.step < 2)


def test_an_incompatible_vocabulary_is_rejected(prior):
    with pytest.raises(WeightsInvalid, match="same family"):
        Alignment.between(
            prior.tokenizer,
            tokenizer(["a", "b", "w1"]),
            48,
            (41, 0),
            CPU,
            share_end=True,
        )


def test_a_rubric_needs_an_answer_placeholder():
    with pytest.raises(ValidationError, match="answer"):
        YesNoReward(rubric="Is this good? {prompt}")


def test_a_reply_must_be_one_token(prior, reward_model):
    with pytest.raises(InvalidSpec, match="2 tokens"):
        TextReward(reward_model, YesNoReward(rubric="{answer}", yes="w1 w2"), ASKED).of(
            torch.tensor([[3]]), []
        )
