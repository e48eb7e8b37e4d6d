"""The tokenizer: quantizers, the `patch` field, damaged checkpoints.

tests/parity compares it with the original.
"""

from pathlib import Path

import pytest
import torch

from aps_core.errors import WeightsInvalid, WeightsMissing
from aps_core.tokenizers.magvit2 import load_magvit
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig
from aps_core.tokenizers.quantizers import LookupFreeQuantizer, VectorQuantizer

FIXTURE = Path(__file__).parents[1] / "fixtures" / "magvitv2"


def test_zero_is_quantized_to_minus_one():
    codes, q = LookupFreeQuantizer(3)(torch.tensor([[0.0, 0.1, -0.1]]))
    assert codes.tolist() == [2]
    assert q.tolist() == [[-1, 1, -1]]


def test_vector_quantizer_takes_the_nearest_row():
    generator = torch.Generator().manual_seed(0)
    book, e = torch.randn(32, 5, generator=generator), torch.randn(2, 7, 5, generator=generator)
    codes, q = VectorQuantizer(book)(e)
    assert torch.equal(codes, torch.cdist(e, book.expand(2, -1, -1)).argmin(-1))
    assert torch.equal(q, book[codes])


def test_patch_unshuffles_pixels():
    net = Magvit2(
        MagvitConfig.model_validate(
            {
                "ch": 32,
                "patch": 4,
                "encoder": {"ch_mult": [1, 1], "num_res_blocks": [1, 1]},
                "decoder": {"ch_mult": [1, 1], "num_res_blocks": [1, 1]},
            }
        )
    )
    z = net.encoder(torch.zeros(1, 3, 32, 16))
    assert z.shape == (1, 13, 4, 2)
    assert net.decoder(z).shape == (1, 3, 32, 16)
    assert net.config.stride == 8


def test_damaged_checkpoints_are_reported_by_name(tmp_path):
    with pytest.raises(WeightsMissing, match=r"config\.json"):
        load_magvit(tmp_path, "cpu", torch.float32)
    (tmp_path / "config.json").write_text(
        (FIXTURE / "config.json").read_text().replace('"ch": 32', '"ch": 64')
    )
    (tmp_path / "model.safetensors").write_bytes((FIXTURE / "model.safetensors").read_bytes())
    with pytest.raises(WeightsInvalid, match=r"has shape .* expected"):
        load_magvit(tmp_path, "cpu", torch.float32)
    (tmp_path / "config.json").write_text((FIXTURE / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(
        (FIXTURE / "model.safetensors").read_bytes()[:-1000]
    )
    with pytest.raises(WeightsInvalid, match="not a readable safetensors"):
        load_magvit(tmp_path, "cpu", torch.float32)
