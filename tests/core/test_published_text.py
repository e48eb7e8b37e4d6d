"""The specs of published text priors, with tiny networks in the published layout."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
)

from aps_core.engines.engine import TextEngine
from aps_core.errors import InvalidSpec, WeightsMissing
from aps_core.priors.dream.network import DreamConfig
from aps_core.tasks import GuideSpec, Inputs, run

DREAM_ONLY, SHARED, QWEN3_ONLY = (
    ["<|beginoftext|>", "<|mask|>"],
    ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    ["<think>", "</think>"],
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)
LABELS: dict[str, Any] = {"num_labels": 1}
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 2048,
}


def byte_level(special: list[str]) -> Tokenizer:
    """A tokenizer with one token per byte, and "Yes" and "No"."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, "Ye", "Yes", "No"]
    made = Tokenizer(
        models.BPE(
            vocab={word: i for i, word in enumerate(words)},
            merges=[("Y", "e"), ("Ye", "s"), ("N", "o")],
        )
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    return made


@pytest.fixture
def weights(tmp_path, monkeypatch):
    torch.manual_seed(0)
    networks: list[tuple[str, list[str], Any]] = [
        ("dream-7b-instruct", [*SHARED, *DREAM_ONLY], Qwen2ForCausalLM),
        ("qwen3-0.6b", [*SHARED, *QWEN3_ONLY], Qwen3ForCausalLM),
        (
            "skywork-reward-v2-qwen3-0.6b",
            [*SHARED, *QWEN3_ONLY],
            Qwen3ForSequenceClassification,
        ),
    ]
    for name, special, network in networks:
        folder = tmp_path / name
        folder.mkdir()
        tokenizer = byte_level(special)
        ids = {text: tokenizer.token_to_id(text) for text in special}
        if name == "dream-7b-instruct":
            config = DreamConfig(
                **SHAPE,
                vocab_size=272,
                rope_theta=1e6,
                mask_token_id=ids["<|mask|>"],
                eos_token_id=ids["<|endoftext|>"],
            )
            model, text = network(config.qwen2()), config.model_dump(exclude={"chat_format"})
        else:
            qwen = Qwen3Config(
                **SHAPE,
                vocab_size=268,
                head_dim=16,
                eos_token_id=ids["<|im_end|>"],
                tie_word_embeddings=True,
                **LABELS,
                architectures=[network.__name__],
            )
            model, text = network(qwen), qwen.to_dict()
            (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
        # Qwen3-0.6B stores its tied head as well
        save_file(
            {key: value.clone().contiguous() for key, value in model.state_dict().items()},
            folder / "model.safetensors",
        )
        (folder / "config.json").write_text(json.dumps(text))
        if name == "dream-7b-instruct":  # which is released without a tokenizer.json
            tokenizer.model.save(str(folder))
            (folder / "added_tokens.json").write_text(json.dumps(ids))
        else:
            tokenizer.save(str(folder / "tokenizer.json"))
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    return tmp_path


def test_dream_guided_by_the_published_reward_model(weights):
    engine = TextEngine.load("dream_7b")
    known = engine.reward.alignment.known_V
    special = {
        text: bool(known[engine.prior.tokenizer.token_to_id(text)])
        for text in [*SHARED, *DREAM_ONLY]
    }
    assert special == {**dict.fromkeys(SHARED, True), **dict.fromkeys(DREAM_ONLY, False)}
    assert not known[-1]
    prompt = engine.prior.tokenizer.decode(engine.prior.encode("Hello"), skip_special_tokens=False)
    assert prompt.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
    rewards = []
    spec = GuideSpec(prior="dream_7b", prompt="Hello", sampler={"max_new_tokens": 6, "steps": 3})
    result: Any = run(spec, Inputs(), engine, lambda p: rewards.extend(p.reward_curve))
    assert len(rewards) == 9
    reward = result.spec.reward
    assert (reward.type, reward.model) == ("sequence_classifier", "skywork-reward-v2-qwen3-0.6b")
    assert result.sidecar()["token_coverage"] == engine.reward.alignment.coverage < 1
    config = result.spec.sampler
    assert (config.top_k, config.confidence, config.end_last) == (None, "initial", True)
    assert all(not weight.requires_grad for weight in engine.reward.model.parameters())


def test_other_rewards_read_the_language_model(weights):
    engine = TextEngine.load("dream_7b")
    asked = {"prior": "dream_7b", "prompt": "Hello", "sampler": {"max_new_tokens": 4, "steps": 2}}
    for kind in ("yes_no", "log_likelihood"):
        spec = GuideSpec(**asked, reward={"type": kind})
        assert spec.checkpoints == ("qwen3-0.6b",)
        result: Any = run(spec, Inputs(), engine)
        assert result.spec.reward.model == "qwen3-0.6b"
    with pytest.raises(InvalidSpec, match="needs a classifier"):
        run(
            GuideSpec(**asked, reward={"type": "sequence_classifier", "model": "qwen3-0.6b"}),
            Inputs(),
            engine,
        )
    (weights / "qwen3-0.6b").rename(weights / "elsewhere")
    with pytest.raises(WeightsMissing, match=r"aps weights fetch qwen3-0\.6b"):
        run(GuideSpec(**asked, reward={"type": "yes_no"}), Inputs(), engine)
    with pytest.raises(InvalidSpec, match="There is no checkpoint 'praise'"):
        run(GuideSpec(**asked, reward={"type": "yes_no", "model": "praise"}), Inputs(), engine)


def test_a_missing_reward_model_is_reported_before_loading_the_prior(weights):
    (weights / "skywork-reward-v2-qwen3-0.6b").rename(weights / "elsewhere")
    with pytest.raises(WeightsMissing, match=r"skywork-reward-v2-qwen3-0\.6b"):
        TextEngine.load("dream_7b")
