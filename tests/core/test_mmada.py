"""The MMaDA prior and its unguided sampler against the original implementation."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from aps_core.baselines import sample_prior
from aps_core.config import APSConfig
from aps_core.errors import WeightsInvalid
from aps_core.priors.mmada import Layout, MMaDAPrior, load_mmada
from aps_core.priors.windows import window_starts
from aps_core.schedule import masked_counts
from aps_core.types import MASK

FIXTURES = Path(__file__).parents[1] / "fixtures"
LAYOUT = {"image_offset": 90, "codebook_size": 64, "mask": 80, "t2i": 68, "bos": 70, "eos": 71, "soi": 64, "eoi": 65, "max_text_len": 12, "native_grid": [4, 4]}


class Identity:
    """A tokenizer whose 64 codes are their own embeddings; decoding is not looked at here."""

    codebook_KD = torch.eye(64)
    stride = 1

    def decode(self, e_BLD, grid):
        return torch.zeros(len(e_BLD), 3, *grid)


def checkpoint(folder: Path, name: str) -> MMaDAPrior:
    config = json.loads((FIXTURES / name / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "layout": LAYOUT}))
    (folder / "model.safetensors").write_bytes((FIXTURES / name / "model.safetensors").read_bytes())
    words = {str(i): i for i in range(64)}
    text = Tokenizer(models.WordLevel(words, unk_token="0"))
    text.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    text.save(str(folder / "tokenizer.json"))
    return load_mmada(folder, Identity(), torch.device("cpu"), torch.float32)


def test_backbone_is_bidirectional_and_equal(tmp_path):
    prior = checkpoint(tmp_path, "mmada_lm")
    expected = np.load(FIXTURES / "mmada_lm" / "expected.npz")
    with torch.no_grad():
        logits = prior.model(torch.from_numpy(expected["input_ids"]), use_cache=False).logits
    torch.testing.assert_close(logits, torch.from_numpy(expected["logits_no_mask"]), atol=2e-5, rtol=0)


def text_of(ids: np.ndarray) -> str:
    """The caption whose encoding is the fixture's text: what stands between bos and eos."""
    row = ids.tolist()
    return " ".join(map(str, row[row.index(70) + 1 : row.index(71)]))


@pytest.mark.parametrize("run", ["greedy_cfg", "greedy_nocfg", "greedy_cfg_known"])
def test_greedy_text_to_image_loop(tmp_path, run):
    prior = checkpoint(tmp_path, "mmada_t2i")
    expected = np.load(FIXTURES / "mmada_t2i" / "expected.npz")
    settings = json.loads((FIXTURES / "mmada_t2i" / "config.json").read_text())["fixture"]["runs"][run]
    for row in range(2):  # captions differ in length; without padding each is a batch of its own
        ids = expected[f"{run}/input_ids"][row]
        image = torch.from_numpy(ids[-17:-1])[None]
        z = torch.where(image == 80, MASK, image - 90)
        sample = sample_prior(
            prior,
            None,
            APSConfig(steps=settings["timesteps"], guidance_scale=settings["guidance_scale"]),
            grid=(4, 4),
            generator=torch.Generator().manual_seed(0),
            condition=text_of(ids),
            z_BL=z,
            temperature=0.0,
        )
        assert sample.z_BL[0].tolist() == expected[f"{run}/out_codes"][row].tolist()


def test_first_step_logits(tmp_path):
    prior = checkpoint(tmp_path, "mmada_t2i")
    expected = np.load(FIXTURES / "mmada_t2i" / "expected.npz")
    ids = expected["greedy_nocfg/input_ids"][0]
    z = torch.full((1, 16), MASK)
    logits = prior.logits(z, grid=(4, 4), mask_fraction=1.0, condition=text_of(ids), guidance_scale=0.0)
    torch.testing.assert_close(logits[0], torch.from_numpy(expected["greedy_nocfg/step0_logits_image"][0]), atol=5e-5, rtol=0)


def test_prompt_block_matches_the_published_layout():
    stored = np.load(FIXTURES / "mmada_t2i" / "prompting.npz")
    layout = Layout()
    for i in range(4):
        block = layout.text_block(stored[f"text_{i}"].tolist())
        valid = stored["input_ids"][i][stored["attention_mask"][i] == 1].tolist()
        assert valid[: len(block)] == block
        assert valid[len(block)] == layout.soi
        assert valid[-1] == layout.eoi


def test_mask_counts_follow_the_published_schedule():
    stored = json.loads((FIXTURES / "mmada_t2i" / "cosine_mask_len.json").read_text())
    for name, counts in stored.items():
        steps, tokens = (int(part[1:]) for part in name.removeprefix("cosine_").split("_"))
        assert masked_counts(tokens, steps)[:-1] == counts[:-1]
        assert masked_counts(tokens, steps)[-1] == 0


@pytest.mark.parametrize(("length", "window"), [(4, 4), (5, 4), (61, 32), (93, 32), (128, 32), (3, 4)])
@pytest.mark.parametrize("shift", [0, 1, 7, 1000])
def test_windows_cover_everything_and_overlap(length, window, shift):
    starts = window_starts(length, window, shift)
    covered = {i for s in starts for i in range(s, s + window)}
    assert set(range(length)) <= covered
    assert all(b - a < window for a, b in pairwise(starts))
    assert starts[-1] == max(0, length - window)


@pytest.mark.parametrize("grid", [(4, 7), (9, 6), (3, 4), (2, 2)])
def test_grids_of_any_size_get_normalised_window_averages(tmp_path, grid):
    prior = checkpoint(tmp_path, "mmada_t2i")
    z = torch.full((2, grid[0] * grid[1]), MASK)
    z[:, 0] = torch.tensor([3, 60])
    logits = prior.logits(z, grid=grid, mask_fraction=1.0, condition="", guidance_scale=0.0)
    assert logits.shape == (2, grid[0] * grid[1], 64)
    assert torch.isfinite(logits).all()
    assert not torch.allclose(logits[0], logits[1])  # each row sees its own tokens


def test_a_truncated_checkpoint_is_refused(tmp_path):
    checkpoint(tmp_path, "mmada_lm")
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"n_layers": 2', '"n_layers": 3'))
    with pytest.raises(WeightsInvalid, match=r"blocks\.2\..* is missing"):
        load_mmada(tmp_path, Identity(), torch.device("cpu"), torch.float32)
