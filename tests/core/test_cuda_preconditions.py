"""What CUDA's kernels demand, checked without a GPU: memory layouts, gradients, compiled graphs,
deterministic attention. ``docs/gpu/preconditions.md`` lists every demand with its test.

Where our code chooses by device, a fixture makes it choose on this CPU what it would on CUDA.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from aps_core.tokenizers import group_norm
from aps_core.tokenizers.attention import sliced_attention
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.frozen import GroupNorm
from aps_core.tokenizers.group_norm import FusedNorm, norm_backward, norm_forward
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.tokenizers.magvit2_net import LevelConfig, Magvit2, MagvitConfig

FIXTURE = Path(__file__).parents[1] / "fixtures" / "magvitv2"
CPU = torch.device("cpu")
SMALL = MagvitConfig(
    ch=32,
    encoder=LevelConfig(ch_mult=(1, 2), num_res_blocks=(1, 1)),
    decoder=LevelConfig(ch_mult=(1, 2), num_res_blocks=(1, 1)),
)
ON_CUDA = ExecutionPlan.default(torch.device("cuda"), torch.bfloat16)
PLANS = [
    ExecutionPlan(channels_last=last, compile=compiled, recompute=recompute)
    for last in (True, False)
    for compiled in ("none", "norms")
    for recompute in (True, False)
]
LEAN_PLANS = pytest.mark.parametrize("plan", PLANS, ids=str)


@pytest.fixture
def cuda_rules(monkeypatch):
    """On this CPU, the stock kernels get what CUDA's would."""
    monkeypatch.setattr(group_norm, "CHANNELS_LAST_DEVICES", ())


@pytest.fixture(autouse=True)
def eager_compiler(monkeypatch):
    """Dynamo traces and guards as on CUDA, but the graphs run as they are; no compiler needed."""
    monkeypatch.setattr(FusedNorm.__init__, "__defaults__", (lambda graph, _: graph.forward,))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Layouts(TorchDispatchMode):
    """The strides of every picture that stock normalisations and convolutions are given."""

    def __init__(self):
        super().__init__()
        self.norms = []
        self.convolutions = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        pictures = [a for a in args if isinstance(a, torch.Tensor) and a.dim() == 4]
        if "group_norm" in str(func):
            self.norms += [(str(func), p.is_contiguous()) for p in pictures]
        if "convolution" in str(func):
            self.convolutions.append(pictures[0].is_contiguous())
        return func(*args, **(kwargs or {}))


def layouts(plan):
    """Of one pass through decoder and encoder and back."""
    parts = MagvitTokenizer(Magvit2(SMALL), plan)
    e = torch.randn(2, 24, 13, requires_grad=True)
    with Layouts() as seen:
        parts.features(parts.decode(e, (4, 6))).sum().backward()
    norms = sum(isinstance(layer, GroupNorm) for layer in parts.net.modules())
    backward = [name for name, _ in seen.norms if "backward" in name]
    assert len(backward) == (0 if plan.compile == "norms" else 2 * norms), "all were looked at"
    return seen


@LEAN_PLANS
def test_stock_norms_receive_contiguous_pictures(plan, cuda_rules):
    """CUDA's group normalisation reads (B, C, H, W) memory, whatever the strides say."""
    seen = layouts(plan)
    assert [name for name, contiguous in seen.norms if not contiguous] == []
    if plan.channels_last:
        assert not all(seen.convolutions), "the convolutions keep the other layout"


def test_the_layouts_are_looked_at():
    """Under the CPU's rule, where strided memory is fine, the same test would fail."""
    seen = layouts(ExecutionPlan(channels_last=True))
    assert not all(contiguous for _, contiguous in seen.norms)


@LEAN_PLANS
def test_gradients_in_every_plan_equal_autograd_s(plan, cuda_rules):
    """Values where CUDA's rules hold, in float64, channels-last and not."""
    torch.manual_seed(0)
    net = Magvit2(SMALL).double()
    plain = MagvitTokenizer(net, ExecutionPlan(lean=False))
    e, probe = torch.randn(2, 24, 13), torch.randn(2, 3, 8, 12)

    def gradient(parts):
        x = e.clone().requires_grad_()
        picture = parts.decode(x, (4, 6))
        loss = (picture * probe).sum() + parts.features(picture).square().sum()
        return torch.autograd.grad(loss, x)[0]

    expected = gradient(plain)
    torch.testing.assert_close(gradient(MagvitTokenizer(net, plan)), expected, rtol=1e-5, atol=1e-6)


def test_a_norm_that_is_given_strided_memory_differentiates_it_rightly(cuda_rules):
    """The gradient of channels-last input that the stock CUDA kernel would misread."""
    torch.manual_seed(0)
    layer = GroupNorm(4, 16, 1e-6, silu=True).double().requires_grad_(False)
    x = torch.randn(2, 16, 6, 5).double().to(memory_format=torch.channels_last)
    probe = torch.randn(2, 16, 6, 5).double()
    results = []
    for frozen in (False, True):
        if frozen:
            layer.freeze()
        x_in = x.clone().requires_grad_()
        y = layer(x_in)
        results.append((y, *torch.autograd.grad((y * probe).sum(), x_in)))
    assert results[1][0].is_contiguous(memory_format=torch.channels_last), "the network's layout"
    for ours, theirs in zip(*reversed(results), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("silu", [True, False])
def test_compiled_formulas(silu):
    torch.manual_seed(0)
    x, probe, weight, bias = (
        torch.randn(2, 30, 16).double(),
        torch.randn(2, 30, 16).double(),
        torch.randn(16).double(),
        torch.randn(16).double(),
    )

    x.requires_grad_()
    y = F.group_norm(x.transpose(1, 2), 4, weight, bias, 1e-6).transpose(1, 2)
    y = F.silu(y) if silu else y
    (gradient,) = torch.autograd.grad((y * probe).sum(), x)
    settings = (weight, bias, (4, 1e-6, silu))
    torch.testing.assert_close(norm_forward(x, *settings), y, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(norm_backward(probe, x, *settings), gradient, rtol=1e-5, atol=1e-5)


SHAPES = [(1, 8, 8), (1, 16, 16), (1, 16, 8), (1, 4, 64), (2, 8, 8), (3, 8, 12), (8, 8, 8)]


def test_compiled_norms_serve_every_shape_with_two_graphs_each(monkeypatch):
    """Dynamo gives up silently on a code object with more than eight graphs. Channel counts of
    the published network; sides and batches that coincide with each other and do not.
    """
    monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
    graphs = 0

    def backend(graph, _):
        nonlocal graphs
        graphs += 1
        return graph.forward

    fused = FusedNorm(backend)
    layers = [
        GroupNorm(32, channels, 1e-6, silu=silu)
        for channels, silu in ((128, True), (256, True), (512, True), (512, False))
    ]
    for layer in layers:
        layer.requires_grad_(False).freeze(fused)
    counts = []
    for batch, height, width in SHAPES:
        for layer in layers:
            x = torch.randn(batch, layer.num_channels, height, width)
            x = x.to(memory_format=torch.channels_last).requires_grad_()
            torch.autograd.grad(layer(x).sum(), x)
        counts.append(graphs)
    assert fused.failure is None
    single, several = 2 * len(layers), 4 * len(layers)  # forward and backward
    assert counts == [single] * 4 + [several] * 3


def test_a_failing_compiler_is_reported_once_and_the_stock_kernels_take_over(caplog, cuda_rules):
    def broken(*_):
        raise RuntimeError("Python.h: No such file or directory")

    plain, parts = (
        load_magvit(FIXTURE, CPU, torch.float32, plan)
        for plan in (ExecutionPlan(lean=False), ON_CUDA)
    )
    parts.fused.backend = broken
    assert not parts.fallback
    e = torch.randn(1, 8, 13)
    torch.testing.assert_close(parts.decode(e, (2, 4)), plain.decode(e, (2, 4)))
    decode = parts.decode(e.requires_grad_(), (2, 4))
    decode.sum().backward()
    (warning,) = [line for line in caplog.messages if "cannot be compiled" in line]
    assert "Python.h" in warning
    assert "Python.h" in parts.fallback


def test_a_fault_of_the_device_is_no_fault_of_the_compiler():
    def full(*_):
        def run(*_):
            raise torch.OutOfMemoryError("CUDA out of memory")

        return run

    fused = FusedNorm(full)
    with pytest.raises(torch.OutOfMemoryError):
        fused.forward(
            torch.randn(1, 8, 4, 4), torch.ones(8), torch.zeros(8), settings=(4, 1e-6, True)
        )
    assert fused.failure is None


def test_the_plan_for_cuda_compiles_and_is_channels_last():
    assert replace(ON_CUDA, compile="norms", channels_last=True) == ON_CUDA


def test_recomputation_reads_no_generator(monkeypatch):
    """A CUDA graph's capture fails where a generator's state is read."""
    monkeypatch.setattr(torch, "get_rng_state", None)
    parts = MagvitTokenizer(Magvit2(SMALL), ExecutionPlan(recompute=True))
    e = torch.randn(1, 24, 13, requires_grad=True)
    parts.decode(e, (4, 6)).sum().backward()
    monkeypatch.setattr("aps_core.tokenizers.attention.TABLE", 1)
    q = torch.randn(1, 24, 13, requires_grad=True)
    sliced_attention(q, q, q, 7).sum().backward()
