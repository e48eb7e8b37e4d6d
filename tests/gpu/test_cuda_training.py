"""A prior's training on CUDA: first estimates and fits as CUDA graphs."""

from typing import Any

import pytest
import torch

from aps_core.sampling import cuda_graph
from training.measurement_kinds import Kinds
from training.random_measurement import RandomMeasurements, Sort
from training.recorded import recorded

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]

KINDS = Kinds(area_weight=0.5, clipped_smoothness=1.0)


def measured(device: str, factor: int, seed: int) -> tuple[torch.Tensor, RandomMeasurements]:
    """Pictures and measurements, all drawn on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    small = torch.rand(24, 3, 8, 8, generator=generator) * 2 - 1
    x = torch.nn.functional.interpolate(small, scale_factor=6, mode="bicubic").clamp(-1, 1)
    made = RandomMeasurements.of(x, factor, generator, KINDS)
    moved: dict[str, Any] = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in vars(made).items()
    }
    return x.to(device), RandomMeasurements(**moved)


@pytest.mark.parametrize("factor", [1, 2])
def test_recorded_estimates_and_fits_are_those_of_a_cpu(factor, monkeypatch):
    """Of several batches, because a graph must read its new inputs."""

    def no_warning(*message):
        pytest.fail(f"not recorded: {message}")

    monkeypatch.setattr(cuda_graph.logger, "warning", no_warning)
    for seed in (0, 1):
        outcomes = []
        for device in ("cpu", "cuda"):
            x, made = measured(device, factor, seed)
            picture = (0.5 * x).requires_grad_()
            precision = torch.linspace(1, 50, x[:, :1].numel(), device=device)
            precision = precision.view_as(x[:, :1]).requires_grad_()
            fitted = made.fitted(picture, precision)
            fitted.square().sum().backward()
            outcomes.append((made.first_estimate(), fitted, picture.grad, precision.grad))
        assert made.of_sorts([Sort.MIXTURES])
        for ours, theirs in zip(*outcomes, strict=True):
            apart = (ours.detach() - theirs.detach().cpu()).square().mean().sqrt()
            assert apart < 0.02 * ours.detach().square().mean().sqrt()


def test_a_graph_is_recorded_once_for_every_name_and_shape():
    calls = []

    def doubled(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return 2 * x

    x = torch.ones(3, device="cuda")
    first = recorded("doubled", doubled, x)
    again = recorded("doubled", doubled, x + 1)
    assert torch.equal(first, 2 * x)  # not overwritten by the next replay
    assert torch.equal(again, 2 * x + 2)
    assert len(set(calls)) == 1
    seen = len(calls)
    recorded("doubled", doubled, torch.ones(4, device="cuda"))
    assert len(calls) == 2 * seen
