"""The fast path: every optimisation matches the plain version in output and gradient.

Counts of saved bytes, arithmetic operations and operator calls guard against performance
regressions, because they do not depend on the machine.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from aps_core.aps import sample_aps
from aps_core.samplers.aps import APSConfig
from aps_core.sampling.expectation import Tilt, expected_code
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.frozen import Conv2d, GroupNorm
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig
from aps_core.tokenizers.quantizers import LookupFreeQuantizer
from aps_core.types import MASK
from benchmarks.inner_loop import Case
from benchmarks.job import prior_tflop
from benchmarks.models import prior, tokenizer

FIXTURE = Path(__file__).parents[1] / "fixtures" / "magvitv2"
CPU = torch.device("cpu")
PLAIN = ExecutionPlan(lean=False)
LEAN = ExecutionPlan(channels_last=True)


def relative_error(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def value_and_gradient(function, x, probe):
    x = x.detach().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad((y * probe).sum(), x)[0]


LAYOUTS = pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])


@LAYOUTS
@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (3, 2)])
def test_frozen_convolution(layout, size, stride):
    torch.manual_seed(0)
    layer: Any = Conv2d(8, 12, size, stride, padding=size // 2).requires_grad_(False)
    layer = layer.to(memory_format=layout)
    x = torch.randn(2, 8, 6, 6).contiguous(memory_format=layout)
    probe = torch.randn(2, 12, 6 // stride, 6 // stride)
    plain = value_and_gradient(layer, x, probe)
    layer.freeze()
    lean = value_and_gradient(layer, x, probe)
    assert torch.equal(lean[0], plain[0])
    assert relative_error(lean[1], plain[1]) < 1e-6


@LAYOUTS
@pytest.mark.parametrize("silu", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_frozen_normalisation(layout, silu, dtype):
    """As close to float64 as the stock layers, for gradients in either memory layout, as upsampling
    may produce them.
    """
    torch.manual_seed(0)
    layer = GroupNorm(4, 16, 1e-6, silu=silu).requires_grad_(False)
    layer.weight.normal_()
    layer.bias.normal_()
    other = torch.channels_last if layout == torch.contiguous_format else torch.contiguous_format
    x, probe = (
        (torch.randn(2, 16, 6, 5) + 1).contiguous(memory_format=layout),
        torch.randn(2, 16, 6, 5).contiguous(memory_format=other),
    )
    exact = value_and_gradient(layer.double(), x.double(), probe.double())
    layer.to(dtype)
    plain = value_and_gradient(layer, x.to(dtype), probe.to(dtype))
    layer.freeze()
    lean = value_and_gradient(layer, x.to(dtype), probe.to(dtype))
    for ours, stock, truth in zip(lean, plain, exact, strict=True):
        assert relative_error(ours, truth) < 1.5 * relative_error(stock, truth) + 1e-6


@pytest.mark.parametrize(
    "plan",
    [ExecutionPlan(), LEAN, replace(LEAN, recompute=True), replace(PLAIN, channels_last=True)],
)
def test_decoder_plans_agree(plan):
    stored = torch.randn(2, 8, 13, generator=torch.Generator().manual_seed(0))
    plain, planned = (load_magvit(FIXTURE, CPU, torch.float32, p) for p in (PLAIN, plan))
    probe = torch.randn(2, 3, 32, 64, generator=torch.Generator().manual_seed(1))
    expected = value_and_gradient(lambda e: plain.decode(e, (2, 4)), stored, probe)
    got = value_and_gradient(lambda e: planned.decode(e, (2, 4)), stored, probe)
    assert max(map(relative_error, got, expected)) < 1e-5


def test_bfloat16_gradient_has_the_same_direction():
    case = Case("embedded", 64, 64, CPU)
    e, probe = torch.randn(1, case.tokens, case.bits), torch.randn(1, 3, 64, 64)
    exact, fast = (
        value_and_gradient(lambda e, t=t: t.decode(e, case.grid), e, probe)[1]
        for t in (tokenizer("embedded", CPU, d, None) for d in (torch.float32, torch.bfloat16))
    )
    assert F.cosine_similarity(exact.flatten(), fast.flatten(), dim=0) > 0.99
    assert F.cosine_similarity(exact, fast, dim=-1).min() > 0.95


def test_expected_code_and_its_gradient():
    torch.manual_seed(0)
    phi, book, probe = (
        torch.randn(6, 32).double() * 4,
        torch.randn(32, 5).double(),
        torch.randn(6, 5).double(),
    )
    expected = value_and_gradient(lambda phi: phi.softmax(-1) @ book, phi, probe)
    got = value_and_gradient(lambda phi: expected_code(phi, book), phi, probe)
    for ours, plain in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("bits", [2, 5, 8])
def test_tilted_expected_code_and_its_gradient(bits):
    """The fast way for sign patterns, also far from the prior, against the plain one."""
    torch.manual_seed(bits)
    book = LookupFreeQuantizer(bits).codebook_KD.double()
    log_p = (3 * torch.randn(6, 2**bits).double()).log_softmax(-1)
    u, probe = torch.randn(6, bits).double(), torch.randn(6, bits).double()
    tilt = Tilt(log_p, book)
    assert tilt.halves is not None
    for scale in (0.1, 1.0, 5.0):
        expected = value_and_gradient(
            lambda u: (log_p + u @ book.T).softmax(-1) @ book, scale * u, probe
        )
        got = value_and_gradient(tilt.expected_code, scale * u, probe)
        for ours, plain in zip(got, expected, strict=True):
            torch.testing.assert_close(ours, plain)


def test_a_tilt_neither_overflows_nor_vanishes():
    """Evidence against all that the prior expects, of hundreds of nats, in single precision."""
    book = LookupFreeQuantizer(6).codebook_KD
    log_p = torch.full((1, 64), -1000.0)
    log_p[0, 0] = 0.0  # all bits -1, nearly certain
    for size, sign in ((1.0, -1.0), (200.0, 1.0)):
        value, gradient = value_and_gradient(
            Tilt(log_p, book).expected_code, torch.full((1, 6), size), torch.ones(1, 6)
        )
        assert torch.allclose(value, torch.full((1, 6), sign), atol=1e-4)
        assert gradient.isfinite().all()


def test_a_learned_codebook_is_tilted_by_all_its_codes():
    torch.manual_seed(0)
    book, u = torch.randn(32, 5), torch.randn(6, 5)
    log_p = torch.randn(6, 32).log_softmax(-1)
    tilt = Tilt(log_p, book)
    assert tilt.halves is None
    expected = (log_p + u @ book.T).softmax(-1) @ book
    torch.testing.assert_close(tilt.expected_code(u), expected)


def saved_bytes(plan, dtype):
    """Bytes that autograd saves for the published decoder at 512 pixels, without computation."""
    with torch.device("meta"):
        parts = MagvitTokenizer(Magvit2(MagvitConfig()).to(dtype), plan)
        e = torch.zeros(1, 1024, 13, requires_grad=True)
    weights = {
        t.untyped_storage()._cdata
        for layer in parts.net.modules()
        for t in vars(layer).values()
        if isinstance(t, torch.Tensor)
    }
    weights |= {p.untyped_storage()._cdata for p in parts.net.parameters()}
    kept = {}

    def pack(t):
        if t.untyped_storage()._cdata not in weights:
            kept[t.untyped_storage()._cdata] = t
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        x = parts.decode(e, (32, 32))
    assert x.requires_grad
    return sum(t.untyped_storage().nbytes() for t in kept.values())


def test_saved_bytes():
    stock, lean, recompute = (
        saved_bytes(p, d)
        for p, d in (
            (PLAIN, torch.float32),
            (LEAN, torch.bfloat16),
            (replace(LEAN, recompute=True), torch.bfloat16),
        )
    )
    assert lean < 0.85 * 2**30
    assert lean < stock / 6
    assert recompute < 0.6 * lean


def test_weight_gradients_are_not_computed():
    with torch.device("meta"):
        parts = MagvitTokenizer(Magvit2(MagvitConfig()), LEAN)
        e = torch.zeros(1, 1024, 13, requires_grad=True)
    assert not any(p.requires_grad for p in parts.net.parameters())
    with FlopCounterMode(display=False) as counter:
        parts.decode(e, (32, 32)).sum().backward()
    assert counter.get_total_flops() == pytest.approx(2.41e12, rel=0.01)


class Counter(TorchDispatchMode):
    """Counts operator calls by name."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((str(func), args))
        return func(*args, **(kwargs or {}))

    def count(self, name=""):
        return sum(name in called for called, _ in self.calls)


def inner_step(plan, fixed=False, **settings):
    case = Case("embedded", 32, 32, CPU)
    step = case.step(tokenizer("embedded", CPU, torch.float32, plan), APSConfig(**settings), fixed)
    case.begin(step)
    return step


def test_operator_calls_of_one_iteration():
    step = inner_step(LEAN)
    step()
    with Counter() as counter:
        step()
    assert counter.count() < 450
    assert counter.count("convolution") == 2 * 19
    assert counter.count("_local_scalar_dense") == 0  # no synchronisation with the device


@pytest.mark.parametrize("settings", [{}, {"prior_weight": 0.5, "entropy_weight": 0.1}])
def test_fixed_shapes_change_nothing(settings):
    """A CUDA graph computes all rows but ignores decided ones. It must update masked logits as the
    step over masked rows only does.
    """
    compact, fixed = inner_step(PLAIN, **settings), inner_step(PLAIN, fixed=True, **settings)
    addresses = {name: t.data_ptr() for name, t in fixed.tensors.items()}
    case = Case("embedded", 32, 32, CPU)
    for z_BL in (case.z_BL, case.z_BL.flip(1)):
        for step in (compact, fixed):
            step.begin(case.logits_LK[z_BL[0] == MASK], z_BL, 0.1)
            for _ in range(4):
                step()
        # Adam amplifies rounding
        torch.testing.assert_close(fixed.phi_NK, compact.phi_NK, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(fixed.loss, compact.loss)
        # rows of decided tokens are unchanged
        assert not fixed.tensors["phi"].detach()[z_BL[0] != MASK].any()
    assert {name: t.data_ptr() for name, t in fixed.tensors.items()} == addresses


def test_whole_run_with_fixed_shapes():
    case = Case("embedded", 32, 32, CPU)
    model = prior("embedded", case.grid, True, tokenizer("embedded", CPU, torch.float32), CPU)
    config = APSConfig(steps=3, inner_steps=4)
    runs = [
        sample_aps(
            model,
            case.objective,
            config,
            grid=case.grid,
            generator=torch.Generator().manual_seed(0),
            graph=graph,
        )
        for graph in (False, True)
    ]
    assert torch.equal(runs[0].z_BL, runs[1].z_BL)


def test_prior_uses_flash_attention_without_a_mask():
    case = Case("embedded", 32, 32, CPU)
    model = prior("embedded", case.grid, True, tokenizer("embedded", CPU, torch.bfloat16), CPU)
    with Counter() as counter:
        model.logits(
            case.z_BL, grid=case.grid, mask_fraction=0.5, condition="word", guidance_scale=1.0
        )
    attention = [args for name, args in counter.calls if "attention" in name]
    assert len(attention) == counter.count("_scaled_dot_product_flash_attention") == 2 * 4
    assert not any(args[3:] for args in attention)  # query, key, value: neither mask nor causal
    assert counter.count("aten.mm") == 2 * 4 * 7 + 1  # linear layers of both passes; one head


def test_arithmetic_of_the_published_prior():
    """At 512 pixels with 128 text tokens in the conditional pass, without padding and text rows of
    the head. The published implementation needs 48.8 TFLOP.
    """
    meta = torch.device("meta")
    case = Case("published", 512, 512, meta)
    model = prior("published", case.grid, True, tokenizer("published", meta, torch.bfloat16), meta)
    assert sum(
        p.numel() for p in model.model.parameters()
    ) + model.head_KD.numel() == pytest.approx(7.598e9, rel=1e-3)
    assert prior_tflop(case, model, APSConfig(), " ".join(["word"] * 125)) == pytest.approx(
        31.8, rel=0.01
    )


def test_guidance_is_combined_before_the_head():
    case = Case("embedded", 32, 32, CPU)
    model = prior("embedded", case.grid, True, tokenizer("embedded", CPU, torch.float32), CPU)
    model.model.float()
    model.head_KD = model.head_KD.float()

    def logits(condition, scale):
        return model.logits(
            case.z_BL, grid=case.grid, mask_fraction=0.5, condition=condition, guidance_scale=scale
        )

    torch.testing.assert_close(
        logits("word word", 3.5),
        4.5 * logits("word word", 0.0) - 3.5 * logits("", 0.0),
        atol=1e-4,
        rtol=1e-4,
    )
