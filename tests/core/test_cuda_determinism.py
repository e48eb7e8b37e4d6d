"""No step of the gradient's path uses an operator that CUDA refuses in deterministic mode, or waits
for the device, which a CUDA graph cannot record.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.objectives.csd import CSDConfig, StyleObjective, load_csd
from aps_core.objectives.gram import GramStyle
from aps_core.objectives.vgg16_net import VGG16
from aps_core.operators import OperatorSpec
from aps_core.samplers.aps import APSConfig
from aps_core.tokenizers import group_norm
from benchmarks.inner_loop import Case
from benchmarks.models import tokenizer

FIXTURES = Path(__file__).parents[1] / "fixtures"
CPU = torch.device("cpu")
REFUSED = (
    "adaptive_avg_pool2d_backward",
    "adaptive_max_pool2d_backward",
    "avg_pool3d_backward",
    "fractional_max_pool2d_backward",
    "max_pool2d_with_indices_backward",
    "max_unpool2d",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "replication_pad1d_backward",
    "replication_pad2d_backward",
    "upsample_linear1d_backward",
    "upsample_bilinear2d_backward",
    "upsample_bicubic2d_backward",
    "grid_sampler_2d_backward",
    "nll_loss2d_forward",
    "_embedding_bag",
    "aten.put_",
    "aten.histc",
    "aten.bincount",
    "aten.kthvalue",
    "aten.median.dim",
    "aten.cumsum",
)
"""From the documentation of ``torch.use_deterministic_algorithms``: what raises on CUDA."""
WAITING = ("_local_scalar_dense", "aten.nonzero", "aten.item", "aten.masked_select")
ALL = sorted(
    name for name, cls in OperatorSpec.family.items() if not issubclass(cls, UnknownOperator)
)
SMALL: dict[str, dict[str, Any]] = {
    "gaussian_blur": {"sigma": 1.2},
    "motion_blur": {"kernel_size": 9},
    "kernel_blur": {"kernel": [[1, 2, 1], [0, 3, 0], [0, 0, 1]]},
    "inpainting": {"mask": "random", "fraction": 0.4},
    "compose": {"stages": [{"type": "jpeg"}, {"type": "super_resolution", "factor": 2}]},
}


class Names(TorchDispatchMode):
    """Names of all operators called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))

    def called(self, *words):
        return [name for name in self.names if any(word in name for word in words)]


def assert_capturable(function, *shape):
    x = torch.rand(*shape, generator=torch.manual_seed(0)).requires_grad_()
    with Names() as seen:
        torch.autograd.grad(function(x).sum(), x)
    assert seen.called(*REFUSED, *WAITING) == []


@pytest.mark.parametrize("name", ALL)
def test_operators(name, monkeypatch):
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(FIXTURES))
    spec = OperatorSpec.named(name).model_validate({"type": name, **SMALL.get(name, {})})
    assert_capturable(spec.bind((3, 36, 44)), 1, 3, 36, 44)


def test_perceptual_features():
    net = VGG16().requires_grad_(False)
    assert_capturable(lambda x: sum(h.sum() for h in net(x)), 1, 3, 32, 32)


def test_style():
    folder = FIXTURES / "csd"
    config = CSDConfig.model_validate(json.loads((folder / "config.json").read_text()))
    reference = torch.zeros(3, 40, 48)
    style = StyleObjective(load_csd(folder / "model.safetensors", config=config), reference)
    assert_capturable(lambda x: style(x)[0], 1, 3, 40, 48)
    parts = tokenizer("embedded", CPU, torch.float32)
    gram = GramStyle(parts, reference)
    assert_capturable(lambda x: gram(x)[0], 1, 3, 40, 48)


def test_the_whole_inner_step(monkeypatch):
    """With the shapes and the optimiser that a graph replays."""
    monkeypatch.setattr(group_norm, "CHANNELS_LAST_DEVICES", ())
    case = Case("embedded", 32, 32, CPU)
    parts = tokenizer("embedded", CPU, torch.float32)
    step = case.step(parts, APSConfig(prior_weight=0.5, entropy_weight=0.1), fixed=True)
    case.begin(step)
    assert step.adam.defaults["capturable"]
    step()
    with Names() as seen:
        step()
    assert seen.called(*REFUSED, *WAITING) == []


def test_stock_norms_get_one_dtype():
    """CUDA's kernel takes picture, weight and bias of one dtype; a CPU's would take two. The meta
    device, like CUDA, is no CPU.
    """
    seen = []

    class Dtypes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "group_norm" in str(func):
                seen.append({a.dtype for a in args if isinstance(a, torch.Tensor)})
            return func(*args, **(kwargs or {}))

    x = torch.empty(1, 32, 4, 4, device="meta", dtype=torch.bfloat16)
    weight = torch.empty(32, device="meta", dtype=torch.bfloat16)
    with Dtypes():
        group_norm.stock_backward(x, x, weight, weight, (32, 1e-6, True))
    assert seen == [{torch.bfloat16}] * 2
