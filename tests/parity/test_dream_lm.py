"""Comparison of Dream's network with the original implementation."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models

from aps_core.errors import WeightsInvalid
from aps_core.priors.dream.network import load_dream
from aps_core.text.masked_lm import MaskedLM

CPU = torch.device("cpu")


def add_tokenizer(folder: Path, size: int) -> None:
    """Adds a tokenizer to the fixture, which has only ids."""
    Tokenizer(models.WordLevel({str(i): i for i in range(size)}, unk_token="0")).save(
        str(folder / "tokenizer.json")
    )


def load(fixture, folder: Path) -> MaskedLM:
    config = fixture.config()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((fixture.folder / "model.safetensors").read_bytes())
    add_tokenizer(folder, config["vocab_size"])
    return load_dream(folder, CPU, torch.float32)


def test_logits_are_the_originals_shifted_by_one(parity, tmp_path):
    fixture = parity("dream_lm")
    prior, expected = load(fixture, tmp_path), fixture.arrays()
    torch.testing.assert_close(
        prior.logits(expected["input_ids"]), expected["logits_full_shifted"], atol=2e-5, rtol=0
    )
    torch.testing.assert_close(
        prior.model(expected["input_ids"], use_cache=False).logits,
        expected["logits_full"],
        atol=2e-5,
        rtol=0,
    )


def test_padding_does_not_change_the_logits_of_real_tokens(parity, tmp_path):
    fixture = parity("dream_lm")
    prior, expected = load(fixture, tmp_path), fixture.arrays()
    attention = expected["attention_mask"]
    padded = expected["logits_padded"]
    shifted = torch.cat([padded[:, :1], padded[:, :-1]], dim=1)
    seen = (
        attention.bool() & attention.roll(1, dims=1).bool()
    )  # the output at a padding position is meaningless
    seen[:, 0] = attention[:, 0].bool()
    actual = prior.logits(expected["input_ids"], attention)
    torch.testing.assert_close(actual[seen], shifted[seen], atol=2e-5, rtol=0)


def test_a_wrong_shape_is_reported_with_file_and_key(parity, tmp_path):
    fixture = parity("dream_lm")
    load(fixture, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**fixture.config(), "num_hidden_layers": 3}))
    with pytest.raises(WeightsInvalid, match=r"model\.safetensors.*model\.layers\.2"):
        load_dream(tmp_path, CPU, torch.float32)
