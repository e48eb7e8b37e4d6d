"""Attention whose backward pass is fast in CUDA's deterministic mode: equal to PyTorch's own in
value and gradient, bounded in memory, and used wherever gradients pass through attention there.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from diffusers import VQModel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from aps_core.checkpoints import networks
from aps_core.checkpoints.networks import differentiable, explicit_attention
from aps_core.objectives.csd import CSDConfig, load_csd
from aps_core.tokenizers.attention import TABLE, attention, sliced_attention
from aps_core.tokenizers.magvit2 import MagvitTokenizer
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig
from aps_core.tokenizers.vq_diffusion import VQDiffusionTokenizer

FIXTURES = Path(__file__).parents[1] / "fixtures"
META = torch.device("meta")


def heads(*shape):
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def assert_equal(ours, theirs, inputs):
    probe = torch.randn_like(theirs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad((y * probe).sum(), inputs) for y in (ours, theirs)]
    for mine, stock in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, stock, rtol=0, atol=1e-12)


@pytest.mark.parametrize("table", [TABLE, 1])
@pytest.mark.parametrize("rows", [48, 32, 7])
def test_matrix_products_equal_fused_attention(rows, table, monkeypatch):
    """In one slice of queries, and in several, stored or recomputed for the backward pass."""
    monkeypatch.setattr("aps_core.tokenizers.attention.TABLE", table)
    torch.manual_seed(0)
    q, k, v = heads(2, 48, 32)
    theirs = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
    assert_equal(sliced_attention(q, k, v, rows), theirs, (q, k, v))


def test_matrix_products_equal_fused_attention_with_shared_heads_and_a_mask():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, h, 10, 8).double().requires_grad_() for h in (6, 2, 2))
    mask = torch.ones(10, 10, dtype=torch.bool).tril().expand(2, 1, 10, 10)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    ours, _ = explicit_attention(torch.nn.Module(), q, k, v, mask)
    assert_equal(ours.transpose(1, 2), theirs, (q, k, v))


def test_a_causal_network_needs_its_mask():
    causal: Any = torch.nn.Module()
    causal.is_causal = True
    q, k, v = heads(1, 2, 4, 8)
    with pytest.raises(ValueError, match="mask"):
        explicit_attention(causal, q, k, v, None)


class Calls(TorchDispatchMode):
    """Names of all operators, and the largest result in numbers."""

    def __init__(self):
        super().__init__()
        self.names = set()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.names.add(str(func))
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.numel())
        return result

    @property
    def fused(self):
        return [name for name in self.names if "scaled_dot_product" in name]


def test_tables_stay_small_at_the_largest_picture():
    """2048x2048 pixels at stride 16: 16384 tokens, whose whole table would have 268 million
    scores.
    """
    q = torch.empty(1, 16384, 512, device=META, requires_grad=True)
    with Calls() as calls:
        attention(q, q, q).sum().backward()
    assert calls.fused == []
    assert calls.largest == TABLE == 4096**2


@pytest.mark.parametrize(("length", "stored"), [(4096, True), (4104, False)])
def test_only_tables_of_moderate_size_are_stored(length, stored):
    """On a CPU, too, memory is linear in the number of tokens beyond 256x256 pixels at stride 4."""
    q = torch.randn(1, length, 1, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append(x.numel()) or x, lambda x: x
    ):
        attention(q, q, q)
    assert (sum(kept) >= length**2) == stored


def test_image_decoders_have_no_fused_attention_in_their_backward_pass():
    with META:
        magvit = MagvitTokenizer(Magvit2(MagvitConfig()))
        config = json.loads((FIXTURES / "vqdiffusion" / "config.json").read_text())["vqvae"]
        vq = VQDiffusionTokenizer(VQModel(**config).requires_grad_(False))
    for parts in (magvit, vq):
        e = torch.zeros(1, 64, parts.codebook_KD.shape[1], device=META, requires_grad=True)
        with Calls() as calls:
            parts.features(parts.decode(e, (8, 8))).sum().backward()
        assert calls.fused == []
        assert any("softmax" in name for name in calls.names)


def on_cuda(config, _):
    """What the networks are built with there."""
    return differentiable(config, "cuda")


def test_the_style_network_on_cuda_equals_the_one_on_a_cpu(monkeypatch):
    folder = FIXTURES / "csd"
    config = CSDConfig.model_validate(json.loads((folder / "config.json").read_text()))
    x = torch.randn(2, 3, config.image_size, config.image_size, generator=torch.manual_seed(0))
    results = []
    for build in (differentiable, on_cuda):
        monkeypatch.setattr("aps_core.objectives.csd.differentiable", build)
        descriptor = load_csd(folder / "model.safetensors", config=config)
        leaf = x.clone().requires_grad_()
        with Calls() as calls:
            style = descriptor.encode(leaf)[1]
            gradient = torch.autograd.grad(style[0] @ style[1], leaf)[0]
        assert bool(calls.fused) == (build is differentiable)
        results.append((style.detach(), gradient))
    for fused, explicit in zip(*results, strict=True):
        torch.testing.assert_close(explicit, fused, rtol=1e-4, atol=1e-6)


def test_a_reward_network_on_cuda_equals_the_one_on_a_cpu():
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "head_dim": 16,
    }
    nets = {}
    for device in ("cpu", "cuda"):
        config = Qwen3Config(vocab_size=20, num_attention_heads=4, num_key_value_heads=2, **shape)
        torch.manual_seed(1)
        net = Qwen3ForCausalLM(differentiable(config, device)).double()
        nets[device] = net.eval().requires_grad_(False)
        assert net.config._attn_implementation == ("sdpa" if device == "cpu" else networks.EXPLICIT)
    seen = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    mask = (torch.ones(9, 9, dtype=torch.bool).tril() & seen[:, None]) | torch.eye(9).bool()
    results = []
    for device, net in nets.items():
        x = torch.randn(2, 9, 32, generator=torch.manual_seed(2)).double().requires_grad_()
        with Calls() as calls:
            logits = net(inputs_embeds=x, attention_mask=mask[:, None], use_cache=False).logits
            gradient = torch.autograd.grad(logits[:, -1].square().sum(), x)[0]
        assert bool(calls.fused) == (device == "cpu")
        results.append((logits.detach(), gradient))
    for fused, explicit in zip(*results, strict=True):
        torch.testing.assert_close(explicit, fused, rtol=1e-6, atol=1e-9)
