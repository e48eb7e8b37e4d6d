"""Reward models in the published formats, with tiny random networks."""

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
)

from aps_core.checkpoints import checkpoint_cache
from aps_core.errors import InvalidSpec, WeightsInvalid, WeightsMissing
from aps_core.priors.dream.network import DreamConfig
from aps_core.text.aps import TextReward
from aps_core.text.chat import Message, chat_of
from aps_core.text.config import TextConfig
from aps_core.text.masked_lm import MaskedLM
from aps_core.text.rewards import LogLikelihoodReward, SequenceClassifierReward, YesNoReward
from aps_core.text.rewards.loading import load_reward, merge_adapter
from tests.core.test_published_text import SHAPE, TEMPLATE, byte_level

CPU = torch.device("cpu")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (Message(role="system", content="Be short."), Message(role="user", content="Why oak?"))
QWEN: dict[str, Any] = {
    "vocab_size": 262,
    "head_dim": 16,
    "tie_word_embeddings": True,
    "eos_token_id": 261,
}

LABELS: dict[str, Any] = {"num_labels": 2}
ONE_LABEL: dict[str, Any] = {"num_labels": 1}


def saved(folder, network, config):
    """A checkpoint folder as published, with a random network in float32."""
    folder.mkdir(parents=True)
    torch.manual_seed(1)
    model = network(config)
    for weight in model.parameters():
        weight.data.mul_(3)  # far from uniform
    tied = "lm_head.weight" if config.tie_word_embeddings else None
    tensors = {key: value.clone() for key, value in model.state_dict().items() if key != tied}
    save_file(tensors, folder / "model.safetensors")
    described = {**config.to_dict(), "architectures": [network.__name__]}
    (folder / "config.json").write_text(json.dumps(described))
    byte_level(SPECIAL).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATE, "eos_token": {"content": "<|im_end|>"}})
    )
    return folder


@pytest.fixture(scope="module")
def prior():
    tokenizer = byte_level([*SPECIAL, "<|mask|>"])
    ids = {"mask_token_id": 262, "eos_token_id": tokenizer.token_to_id("<|endoftext|>")}
    config = DreamConfig(**SHAPE, vocab_size=264, rope_theta=1e6, **ids)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config.qwen2()).eval().requires_grad_(False)
    return MaskedLM(model, config, tokenizer, shifted=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = Qwen3Config(**SHAPE, **QWEN, **LABELS)
    return saved(tmp_path_factory.mktemp("r") / "rm", Qwen3ForSequenceClassification, config)


@pytest.fixture(scope="module")
def model(prior, folder):
    return load_reward(folder, prior, CPU, torch.float32)


def by_transformers(model, text: str) -> torch.Tensor:
    """Outputs of the network's own head for a text."""
    model.model.config.pad_token_id = 0
    return model.model(torch.tensor([model.ids(text)])).logits[0]


def test_the_final_score_is_that_of_the_chat_template(model):
    text = "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nWhy oak?<|im_end|>\n"
    expected = by_transformers(model, f"{text}<|im_start|>assistant\nIt is hard.<|im_end|>\n")
    for label in (0, 1):
        reward = TextReward(model, SequenceClassifierReward(label=label), CHAT)
        found = reward.of(torch.zeros(1, 4, dtype=torch.long), ["It is hard."])
        torch.testing.assert_close(found[0], expected[label], atol=1e-5, rtol=1e-5)
    with pytest.raises(InvalidSpec, match="2 outputs"):
        TextReward(model, SequenceClassifierReward(label=2), CHAT).of(
            torch.zeros(1, 1).long(), [""]
        )


def test_an_unfinished_answer_is_read_between_prefix_and_suffix(prior, model):
    """With certain logits, guidance sees the score of the finished text."""
    ids_BL = torch.tensor([prior.tokenizer.encode("It is hard.").ids])
    phi_BLV = torch.nn.functional.one_hot(ids_BL, prior.vocab_size).float() * 50
    masks_BL = torch.full_like(ids_BL, prior.mask_id)
    reward = TextReward(model, SequenceClassifierReward(), CHAT)
    for name in ("expectation", "aps", "entrgi"):
        config = TextConfig(relaxation={"type": name})
        uniform_BL = torch.full(ids_BL.shape, 0.5)
        found_B = reward(masks_BL, masks_BL == prior.mask_id, phi_BLV, config, uniform_BL)
        torch.testing.assert_close(found_B, reward.of(ids_BL, ["It is hard."]), atol=1e-4, rtol=0)


def test_tokens_after_the_end_of_the_likeliest_answer_are_not_read(prior, model):
    reward = TextReward(model, SequenceClassifierReward(), CHAT)
    first, second, early = (
        torch.tensor([[7, end, tail, 262]])
        for end, tail in ((prior.eos_id, 9), (prior.eos_id, 11), (8, 11))
    )
    phi_BLV = torch.randn(1, 4, prior.vocab_size, generator=torch.Generator().manual_seed(0))
    values = [reward(ids, ids == 262, phi_BLV, TextConfig()) for ids in (first, second, early)]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


@pytest.mark.parametrize("kind", ["sequence_classifier", "yes_no", "log_likelihood"])
def test_kept_keys_and_values_change_neither_score_nor_gradient(prior, tmp_path, kind, model):
    spec = {
        "sequence_classifier": SequenceClassifierReward(),
        "yes_no": YesNoReward(),
        "log_likelihood": LogLikelihoodReward(),
    }[kind]
    if spec.kind == "language_model":
        config = Qwen3Config(**SHAPE, **QWEN)
        model = load_reward(
            saved(tmp_path / "lm", Qwen3ForCausalLM, config), prior, CPU, torch.float32
        )
    ids_BL = torch.tensor([[7, 262, 262, 9], [262, 12, prior.eos_id, 262]])
    found = []
    for reuse in (True, False):
        model.reuse = reuse
        random = torch.Generator().manual_seed(0)
        phi_BLV = torch.randn(2, 4, prior.vocab_size, generator=random).requires_grad_()
        reward_B = TextReward(model, spec, CHAT)(ids_BL, ids_BL == 262, phi_BLV, TextConfig())
        found.append((reward_B.detach(), *torch.autograd.grad(reward_B.sum(), phi_BLV)))
    model.reuse = True
    for kept, whole in zip(*found, strict=True):
        torch.testing.assert_close(kept, whole, atol=1e-5, rtol=1e-4)
        assert kept.abs().sum() > 0


def test_the_prefix_is_computed_once_per_prompt(prior, model):
    lengths = []
    watch = model.model.model.register_forward_pre_hook(
        lambda module, args, kwargs: lengths.append(kwargs["inputs_embeds"].shape[1]),
        with_kwargs=True,
    )
    ids_BL = torch.tensor([[7, 262, 262, 9]])
    phi_BLV = torch.zeros(1, 4, prior.vocab_size)
    for prompt in ("first question", "first question", "second"):
        reward = TextReward(model, SequenceClassifierReward(), chat_of(prompt))
        reward(ids_BL, ids_BL == 262, phi_BLV, TextConfig())
    watch.remove()
    long, answer, again, short, last = lengths
    assert answer == again == last < short < long


def test_any_causal_classifier_with_a_chat_template(prior, tmp_path):
    config = LlamaConfig(**SHAPE, vocab_size=262, eos_token_id=261, **ONE_LABEL)
    llama = load_reward(
        saved(tmp_path / "llama", LlamaForSequenceClassification, config), prior, CPU, torch.float32
    )
    found = TextReward(llama, SequenceClassifierReward(), chat_of("Hi")).of(
        torch.zeros(1, 1).long(), ["Ho"]
    )
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
    torch.testing.assert_close(found, by_transformers(llama, text), atol=1e-5, rtol=1e-5)


def test_coverage_and_tokens_without_counterpart(prior, model):
    alignment = model.alignment
    known = prior.tokenizer.get_vocab_size() - 1  # all but the mask
    assert alignment.coverage == known / (known + 1)
    assert not alignment.known_V[prior.mask_id]
    assert alignment.index_V[prior.mask_id] == model.tokenizer.token_to_id("<|im_end|>")
    # the classifier reads the prior's end token as the token of that name
    assert alignment.index_V[prior.eos_id] == model.tokenizer.token_to_id("<|endoftext|>")


def adapter(folder, base: str, tensors, **config):
    folder.mkdir()
    described = {"r": 2, "lora_alpha": 6, "base_model_name_or_path": base, **config}
    (folder / "adapter_config.json").write_text(json.dumps(described))
    save_file(tensors, folder / "adapter_model.safetensors")


def test_an_adapter_is_merged_into_its_base(prior, folder, model, tmp_path, monkeypatch):
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    (tmp_path / "rm").symlink_to(folder)
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    random = torch.Generator().manual_seed(0)
    down, up = (torch.randn(*size, generator=random) for size in ((2, 32), (32, 2)))
    head = torch.ones(2, 32)
    parts = {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}
    adapter(tmp_path / "mine", "me/rm", {**parts, "base_model.model.score.weight": head})
    assert set(checkpoint_cache.present()) == {"mine", "rm"}
    merged = load_reward(checkpoint_cache.path("mine"), prior, CPU, torch.float32)
    layer, before = (each.model.model.layers[0].self_attn.q_proj for each in (merged, model))
    torch.testing.assert_close(layer.weight, before.weight + 3 * up @ down)
    assert torch.equal(merged.model.score.weight, head)
    adapter(tmp_path / "alien", "rm", {"base_model.model.other.lora_A.weight": down})
    with pytest.raises(WeightsInvalid, match="does not fit"):
        load_reward(tmp_path / "alien", prior, CPU, torch.float32)


@pytest.mark.parametrize(
    "field",
    [
        {"rank_pattern": {"q_proj": 1}},
        {"alpha_pattern": {"q_proj": 1}},
        {"fan_in_fan_out": True},
        {"use_dora": True},
        {"layer_replication": [[0, 1], [0, 1]]},
        {"alora_invocation_tokens": [1, 2]},
        {"init_lora_weights": "pissa_niter_4"},
        {"lora_alpha": None},
    ],
    ids=lambda field: next(iter(field)),
)
def test_an_adapter_that_would_be_merged_wrongly_is_refused(model, tmp_path, field):
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    parts = {f"{name}.lora_A.weight": torch.ones(2, 32), f"{name}.lora_B.weight": torch.ones(32, 2)}
    adapter(tmp_path / "mine", "me/rm", parts, **field)
    before = model.model.model.layers[0].self_attn.q_proj.weight.clone()
    with pytest.raises(WeightsInvalid, match=rf"adapter_config\.json: '{next(iter(field))}'"):
        merge_adapter(model.model, tmp_path / "mine")
    assert torch.equal(model.model.model.layers[0].self_attn.q_proj.weight, before)


def test_half_an_adapter_is_refused(model, tmp_path):
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    adapter(tmp_path / "mine", "me/rm", {f"{name}.lora_B.weight": torch.ones(32, 2)})
    with pytest.raises(WeightsInvalid, match="has no lora_A"):
        merge_adapter(model.model, tmp_path / "mine")


def test_a_classifier_without_chat_template_is_refused(prior, folder, tmp_path):
    copy = saved(
        tmp_path / "rm",
        Qwen3ForSequenceClassification,
        Qwen3Config(**SHAPE, **QWEN, **ONE_LABEL),
    )
    (copy / "tokenizer_config.json").unlink()
    with pytest.raises(WeightsMissing, match="chat template"):
        load_reward(copy, prior, CPU, torch.float32)
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}")
    model: Any = load_reward(copy, prior, CPU, torch.float32)
    with pytest.raises(WeightsInvalid, match="does not show the answer"):
        model.template.around(CHAT)


def test_templates_cannot_reach_python(model):
    hostile = replace(model.template, source="{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(Exception, match="unsafe"):
        hostile.render(CHAT, "x")


def test_a_checkpoint_with_both_heads_serves_both_kinds_of_reward(prior, folder, tmp_path):
    """The embedded reward model: one network, read as a classifier or as a language model."""
    both = tmp_path / "both"
    shutil.copytree(folder, both)
    described = json.loads((folder / "config.json").read_text())
    names = ["Qwen3ForSequenceClassification", "Qwen3ForCausalLM"]
    (both / "config.json").write_text(json.dumps({**described, "architectures": names}))
    first = load_reward(both, prior, CPU, torch.float32)
    assert first.kind == "classifier"
    second = load_reward(both, prior, CPU, torch.float32, "language_model")
    assert second.kind == "language_model"
    assert torch.equal(second.model.lm_head.weight, first.embedding.weight)
    # a checkpoint of one kind stays what it is
    assert load_reward(folder, prior, CPU, torch.float32, "language_model").kind == "classifier"
