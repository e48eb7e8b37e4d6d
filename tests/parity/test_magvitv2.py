"""Comparison of the MAGVIT-v2 tokenizer with the original implementation."""

import zlib

import numpy as np
import pytest
import torch

from aps_core.tokenizers.magvit2 import load_magvit
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig
from aps_core.tokenizers.quantizers import LookupFreeQuantizer


@pytest.fixture(scope="module")
def fixture(parity):
    return parity("magvitv2")


@pytest.fixture(scope="module")
def expected(fixture):
    return fixture.arrays()


@pytest.fixture(scope="module")
def tokenizer(fixture):
    return load_magvit(fixture.folder, "cpu", torch.float32)


def tokens(z_BDhw):
    return z_BDhw.flatten(2).transpose(1, 2)


def grid_of(pixels_BCHW, tokenizer):
    return tuple(side // tokenizer.stride for side in pixels_BCHW.shape[-2:])


def test_encoder_and_codes(tokenizer, expected):
    torch.testing.assert_close(
        tokenizer.features(expected["pixels"]), expected["pre_quant"], atol=1e-4, rtol=0
    )
    assert torch.equal(tokenizer.encode(expected["pixels"]), expected["codes"])
    assert torch.equal(tokenizer.encode(expected["pixels_rect"]), expected["codes_rect"])


def test_quantizer(tokenizer, expected):
    assert torch.equal(
        tokenizer.quantize(tokens(expected["pre_quant"]))[1], tokens(expected["z_q"])
    )
    assert torch.equal(
        tokenizer.quantize(tokens(expected["z_cont"]))[1], tokens(expected["z_cont_lfq"])
    )


@pytest.mark.parametrize("shape", ["", "_rect"])
def test_decoder_takes_codes_of_any_grid(tokenizer, expected, shape):
    picture = tokenizer.decode(
        tokenizer.codebook_KD[expected[f"codes{shape}"]],
        grid_of(expected[f"pixels{shape}"], tokenizer),
    )
    torch.testing.assert_close(picture, expected[f"recon{shape}"], atol=1e-4, rtol=0)


def test_decoder_gradient_with_frozen_weights(tokenizer, expected):
    z = tokens(expected["z_cont"]).requires_grad_()
    x = tokenizer.decode(z, tuple(expected["z_cont"].shape[-2:]))
    torch.testing.assert_close(x.detach(), expected["recon_cont"], atol=1e-4, rtol=0)
    (expected["grad_probe"] * x).sum().backward()
    torch.testing.assert_close(z.grad, tokens(expected["grad_z_cont"]), atol=1e-4, rtol=1e-4)
    assert not any(p.requires_grad for p in tokenizer.net.parameters())


def test_bit_order(tokenizer, expected):
    assert torch.equal(
        tokenizer.codebook_KD[expected["codebook_rows"]].double(),
        expected["codebook_entries"].double(),
    )
    assert torch.equal(tokenizer.quantizer.powers_D, expected["power_vals"].long())


def test_published_architecture_has_the_published_keys(fixture):
    with torch.device("meta"):
        ours = {k: list(v.shape) for k, v in Magvit2(MagvitConfig()).state_dict().items()}
    published = fixture.config("real_state_dict_shapes.json")
    published = published.get("shapes", published)
    assert ours == {k: list(v) for k, v in published.items() if not k.startswith("quantize.")}


@pytest.mark.slow
def test_full_size_network_under_formula_weights(fixture):
    expected = fixture.arrays("expected_full_architecture.npz")
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
        h = net.encoder(expected["pixels"])
        torch.testing.assert_close(h, expected["pre_quant"], atol=1e-4, rtol=0)
        assert torch.equal(LookupFreeQuantizer(13)(tokens(h))[0], expected["codes"])
        q = LookupFreeQuantizer(13).codebook_KD[expected["codes_in"]]
        x = net.decoder(q.transpose(1, 2).reshape(1, 13, *h.shape[-2:]))
        torch.testing.assert_close(x, expected["recon"], atol=3e-3, rtol=0)
