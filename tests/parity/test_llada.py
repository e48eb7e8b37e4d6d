"""LLaDA as a text prior (published keys, no shift by one), and Dream's tokenizer files."""

import json

import pytest
import torch
from tokenizers import Tokenizer, models

from aps_core.checkpoints.networks import load_tokenizer
from aps_core.errors import WeightsInvalid, WeightsMissing
from aps_core.priors.llada.network import load_llada
from aps_core.text.config import TextConfig
from aps_core.text.sampling import diffusion_generate

CPU = torch.device("cpu")


@pytest.fixture
def folder(parity, tmp_path):
    """The MMaDA fixture's backbone is LLaDA's class under LLaDA's keys."""
    fixture = parity("mmada_lm")
    (tmp_path / "config.json").write_text(json.dumps(fixture.config()))
    (tmp_path / "model.safetensors").write_bytes(
        (fixture.folder / "model.safetensors").read_bytes()
    )
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(60)}, unk_token="w0")).save(
        str(tmp_path / "tokenizer.json")
    )
    return tmp_path


def test_logits_are_the_originals(folder, parity):
    prior, expected = load_llada(folder, CPU, torch.float32), parity("mmada_lm").arrays()
    torch.testing.assert_close(
        prior.logits(expected["input_ids"]), expected["logits_no_mask"], atol=2e-5, rtol=0
    )


def test_it_generates_an_answer(folder):
    prior = load_llada(folder, CPU, torch.float32)
    ids = diffusion_generate(
        prior,
        torch.tensor([[1, 2, 3]]),
        TextConfig(max_new_tokens=6, steps=3),
        generator=torch.Generator().manual_seed(0),
    )
    assert ids[0, :3].tolist() == [1, 2, 3]
    assert ids.shape == (1, 9)


def test_decoding_stops_at_the_end_and_skips_masks(folder):
    prior = load_llada(folder, CPU, torch.float32)
    assert prior.decode([5, prior.mask_id, 6, prior.eos_id, 7]) == "w5 w6"
    assert prior.ids.render("why?") == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nwhy?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_a_tokenizer_from_vocabulary_and_merges(tmp_path):
    """Dream's release has no tokenizer.json."""
    vocabulary = {text: i for i, text in enumerate(["a", "b", "c", "Ġ", "ab", "Ġc"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nĠ c\n")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|mask|>": 7, "<|endoftext|>": 6}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("ab c<|mask|>").ids == [4, 5, 7]
    assert tokenizer.decode([4, 5, 7], skip_special_tokens=True) == "ab c"
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|mask|>": 9}))
    with pytest.raises(WeightsInvalid, match="added_tokens"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(WeightsMissing, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
