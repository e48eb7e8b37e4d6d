"""The MMaDA prior on grids of any size, and damaged checkpoints.

tests/parity compares it with the release.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from aps_core.errors import WeightsInvalid
from aps_core.priors.mmada.network import MMaDAPrior, load_mmada
from aps_core.sampling.windows import window_starts
from aps_core.types import MASK
from aps_core.types import Tokenizer as PictureTokenizer

FIXTURES = Path(__file__).parents[1] / "fixtures"
LAYOUT = {
    "image_offset": 90,
    "codebook_size": 64,
    "mask": 80,
    "t2i": 68,
    "bos": 70,
    "eos": 71,
    "soi": 64,
    "eoi": 65,
    "max_text_len": 12,
    "native_grid": [4, 4],
}


class Identity:
    """A tokenizer whose 64 codes are their own embeddings; the tests do not use its decoder."""

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
    return load_mmada(
        folder, cast(PictureTokenizer, Identity()), torch.device("cpu"), torch.float32
    )


@pytest.mark.parametrize(
    ("length", "window"), [(4, 4), (5, 4), (61, 32), (93, 32), (128, 32), (3, 4)]
)
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


@pytest.mark.parametrize("grid", [(2, 2), (3, 5), (6, 4)])
def test_a_picture_within_the_whole_limit_is_one_sequence(tmp_path, grid):
    """Every token's logits then depend on every other token, which windows cut off; above the limit
    there are windows again.
    """
    prior = checkpoint(tmp_path, "mmada_t2i")
    tokens = grid[0] * grid[1]
    z = torch.full((1, tokens), MASK)
    changed = z.clone()
    changed[0, -1] = 3
    ask = {"grid": grid, "mask_fraction": 1.0, "condition": "", "guidance_scale": 0.0}
    lengths = []
    prior.model.model.register_forward_pre_hook(
        lambda _, __, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    prior.whole_tokens = tokens
    whole = prior.logits(z, **ask)
    assert whole.shape == (1, tokens, 64)
    assert lengths == [prior.sequence(z, "").shape[1]]
    assert (prior.logits(changed, **ask) - whole).abs().amax(-1).min() > 0
    prior.whole_tokens = tokens - 1
    prior.logits(z, **ask)
    native = prior.layout.native_grid
    assert lengths[-1] == lengths[0] - tokens + native[0] * native[1]


def test_a_truncated_checkpoint_is_refused(tmp_path):
    checkpoint(tmp_path, "mmada_lm")
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"n_layers": 2', '"n_layers": 3'))
    with pytest.raises(WeightsInvalid, match=r"blocks\.2\..* is missing"):
        load_mmada(tmp_path, cast(PictureTokenizer, Identity()), torch.device("cpu"), torch.float32)
