"""The tokenizer network and its quantizer against the original implementation."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from aps_core.errors import WeightsInvalid, WeightsMissing
from aps_core.tokenizers.magvit2 import load_magvit
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig
from aps_core.tokenizers.quantizers import LookupFreeQuantizer, VectorQuantizer

FIXTURE = Path(__file__).parents[1] / "fixtures" / "magvitv2"


@pytest.fixture(scope="module")
def expected():
    return {k: torch.from_numpy(v) for k, v in np.load(FIXTURE / "expected.npz").items()}


@pytest.fixture(scope="module")
def tokenizer():
    return load_magvit(FIXTURE, "cpu", torch.float32)


def tokens(z_BDhw):
    return z_BDhw.flatten(2).transpose(1, 2)


def test_encoder_and_codes(tokenizer, expected):
    torch.testing.assert_close(tokenizer.features(expected["pixels"]), expected["pre_quant"], atol=1e-4, rtol=0)
    assert torch.equal(tokenizer.encode(expected["pixels"]), expected["codes"])
    assert torch.equal(tokenizer.encode(expected["pixels_rect"]), expected["codes_rect"])


def test_decoder_takes_codes_of_any_grid(tokenizer, expected):
    book = tokenizer.codebook_KD
    torch.testing.assert_close(tokenizer.decode(book[expected["codes"]], (4, 4)), expected["recon"], atol=1e-4, rtol=0)
    torch.testing.assert_close(tokenizer.decode(book[expected["codes_rect"]], (2, 4)), expected["recon_rect"], atol=1e-4, rtol=0)


def test_decoder_gradient_with_frozen_weights(tokenizer, expected):
    z = tokens(expected["z_cont"]).requires_grad_()
    x = tokenizer.decode(z, (4, 4))
    torch.testing.assert_close(x.detach(), expected["recon_cont"], atol=1e-4, rtol=0)
    (expected["grad_probe"] * x).sum().backward()
    torch.testing.assert_close(z.grad, tokens(expected["grad_z_cont"]), atol=1e-4, rtol=1e-4)
    assert not any(p.requires_grad for p in tokenizer.net.parameters())


def test_bit_order(tokenizer, expected):
    rows = expected["codebook_rows"]
    assert torch.equal(tokenizer.codebook_KD[rows].double(), expected["codebook_entries"].double())
    assert torch.equal(tokenizer.quantizer.powers_D, expected["power_vals"].long())


def test_zero_counts_as_minus_one():
    codes, q = LookupFreeQuantizer(3)(torch.tensor([[0.0, 0.1, -0.1]]))
    assert codes.tolist() == [2]
    assert q.tolist() == [[-1, 1, -1]]


def test_vector_quantizer_takes_the_nearest_row():
    generator = torch.Generator().manual_seed(0)
    book, e = torch.randn(32, 5, generator=generator), torch.randn(2, 7, 5, generator=generator)
    codes, q = VectorQuantizer(book)(e)
    assert torch.equal(codes, torch.cdist(e, book.expand(2, -1, -1)).argmin(-1))
    assert torch.equal(q, book[codes])


def test_published_architecture_has_the_published_keys():
    with torch.device("meta"):
        ours = {k: list(v.shape) for k, v in Magvit2(MagvitConfig()).state_dict().items()}
    published = json.loads((FIXTURE / "real_state_dict_shapes.json").read_text())
    published = published.get("shapes", published)
    assert ours == {k: list(v) for k, v in published.items() if not k.startswith("quantize.")}


@pytest.mark.slow
def test_full_size_network_under_formula_weights():
    expected = np.load(FIXTURE / "expected_full_architecture.npz")
    net = Magvit2(MagvitConfig()).eval()
    with torch.no_grad():
        for key, p in net.named_parameters():
            i = np.arange(p.numel(), dtype=np.float64)
            phase = 2 * np.pi * ((zlib.crc32(key.encode()) % 100003) / 100003)
            value = np.sin(0.731 * i + phase + 0.11 * np.sin(0.0131 * i))
            if p.ndim == 1:
                value = 0.1 * value + ("norm" in key and key.endswith("weight"))
            else:
                value = value * np.sqrt(2) / np.sqrt(p.numel() / p.shape[0])
            p.copy_(torch.from_numpy(value.astype(np.float32)).view_as(p))
        h = net.encoder(torch.from_numpy(expected["pixels"]))
        torch.testing.assert_close(h, torch.from_numpy(expected["pre_quant"]), atol=1e-4, rtol=0)
        q = LookupFreeQuantizer(13).codebook_KD[torch.from_numpy(expected["codes_in"])]
        x = net.decoder(q.transpose(1, 2).reshape(1, 13, 4, 4))
        torch.testing.assert_close(x, torch.from_numpy(expected["recon"]), atol=3e-3, rtol=0)


def test_patch_unshuffles_pixels():
    net = Magvit2(
        MagvitConfig.model_validate(
            {"ch": 32, "patch": 4, "encoder": {"ch_mult": [1, 1], "num_res_blocks": [1, 1]}, "decoder": {"ch_mult": [1, 1], "num_res_blocks": [1, 1]}}
        )
    )
    z = net.encoder(torch.zeros(1, 3, 32, 16))
    assert z.shape == (1, 13, 4, 2)
    assert net.decoder(z).shape == (1, 3, 32, 16)
    assert net.config.stride == 8


def test_damaged_checkpoints_are_named(tmp_path):
    with pytest.raises(WeightsMissing, match=r"config\.json"):
        load_magvit(tmp_path, "cpu", torch.float32)
    (tmp_path / "config.json").write_text((FIXTURE / "config.json").read_text().replace('"ch": 32', '"ch": 64'))
    (tmp_path / "model.safetensors").write_bytes((FIXTURE / "model.safetensors").read_bytes())
    with pytest.raises(WeightsInvalid, match=r"has shape .* expected"):
        load_magvit(tmp_path, "cpu", torch.float32)
    (tmp_path / "config.json").write_text((FIXTURE / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((FIXTURE / "model.safetensors").read_bytes()[:-1000])
    with pytest.raises(WeightsInvalid, match="not a readable safetensors"):
        load_magvit(tmp_path, "cpu", torch.float32)
