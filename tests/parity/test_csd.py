"""Comparison of the style descriptor with the original CSD code, and the style objective."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPVisionModelWithProjection

from aps_core.errors import WeightsInvalid, WeightsMissing
from aps_core.objectives.csd import CSDConfig, StyleObjective, _clip_state, load_csd


@pytest.fixture(scope="module")
def csd(parity):
    fixture = parity("csd")
    config = CSDConfig.model_validate(fixture.config())
    return load_csd(fixture.folder / "model.safetensors", config=config), fixture, config


def pictures(fixture):
    """The fixture's pictures in [-1, 1]."""
    return fixture.arrays()["images_uint8"].float() / 127.5 - 1


def test_vectors(csd):
    descriptor, fixture, _ = csd
    expected = fixture.arrays()
    x = pictures(fixture)
    with torch.no_grad():
        feature, style, content = descriptor.encode(descriptor.preprocess(x))
    torch.testing.assert_close(feature, expected["feature"], atol=1e-4, rtol=0)
    torch.testing.assert_close(style, expected["style"], atol=1e-5, rtol=0)
    torch.testing.assert_close(content, expected["content"], atol=1e-5, rtol=0)
    assert all(torch.equal(a, b) for a, b in zip(descriptor(x), (style, content), strict=True))


def test_gradient(csd):
    descriptor, fixture, _ = csd
    expected = fixture.arrays()
    normalised = descriptor.preprocess(pictures(fixture))
    leaf = normalised[:1].clone().requires_grad_()
    distance = 1 - torch.nn.functional.cosine_similarity(
        descriptor.encode(leaf)[1], descriptor.encode(normalised[1:2])[1]
    )
    distance.sum().backward()
    assert distance.item() == pytest.approx(float(expected["style_loss_0_vs_1"]), abs=1e-5)
    assert leaf.grad.norm().item() == pytest.approx(float(expected["grad_norm"]), rel=1e-4)
    patch = expected["grad_patch_0_3_64_80"]
    torch.testing.assert_close(
        leaf.grad[0, :, 64:80, 64:80], patch, atol=1e-4 * float(patch.abs().max()), rtol=0
    )


def test_objective(csd):
    descriptor, fixture, _ = csd
    x = pictures(fixture)
    objective = StyleObjective(descriptor, x[1])
    loss, misfit = objective(x.requires_grad_())
    assert misfit[0].item() == pytest.approx(float(fixture.arrays()["style_loss_0_vs_1"]), abs=1e-5)
    assert misfit[1].item() == pytest.approx(0, abs=1e-6)
    assert loss.shape == (len(x),)
    loss.sum().backward()
    assert x.grad[0].abs().max() > 0
    assert not any(p.requires_grad for p in descriptor.model.parameters())


@pytest.mark.parametrize("size", [(64, 64), (300, 230), (96, 200)])
def test_pictures_of_any_size_are_resized_as_tensors(csd, size):
    """The centre square of a smooth picture is the same at every size; only its pixels get
    gradients.
    """
    descriptor, _, _ = csd
    x = torch.zeros(1, 3, *size).requires_grad_()
    prepared = descriptor.preprocess(x)
    assert prepared.shape[-2:] == (descriptor.size, descriptor.size)
    torch.testing.assert_close(
        prepared[0, :, 0, 0], (0.5 - descriptor.mean.flatten()) / descriptor.std.flatten()
    )
    prepared.sum().backward()
    middle, corner = x.grad[0, 0, size[0] // 2, size[1] // 2], x.grad[0, 0, 0, 0]
    assert middle != 0
    assert (corner != 0) == (size[0] == size[1])


def test_keys_of_a_parallel_run(csd, tmp_path):
    descriptor, fixture, config = csd
    state = load_file(fixture.folder / "model.safetensors")
    save_file({f"module.{k}": v for k, v in state.items()}, tmp_path / "prefixed.safetensors")
    x = pictures(fixture)[:1]
    assert torch.equal(
        load_csd(tmp_path / "prefixed.safetensors", config=config)(x)[0], descriptor(x)[0]
    )


def test_invalid_weights_are_rejected(csd, tmp_path):
    _, fixture, config = csd
    state = load_file(fixture.folder / "model.safetensors")
    with pytest.raises(WeightsMissing, match="does not exist"):
        load_csd(tmp_path / "absent.safetensors", config=config)
    save_file(
        {k: v for k, v in state.items() if k != "last_layer_style"}, tmp_path / "short.safetensors"
    )
    with pytest.raises(WeightsInvalid, match="'last_layer_style' is missing"):
        load_csd(tmp_path / "short.safetensors", config=config)
    torch.save({"model_state_dict": state}, tmp_path / "official.pth")
    with pytest.raises(WeightsInvalid, match=r"is a pickle.*save_file"):
        load_csd(tmp_path / "official.pth", config=config)
    with pytest.raises(WeightsInvalid, match="has shape"):
        load_csd(
            fixture.folder / "model.safetensors",
            config=config.model_copy(update={"output_dim": config.output_dim + 1}),
        )


def test_published_shapes():
    """Number of parameters of the released ViT-L."""
    shapes = CSDConfig().published_shapes()
    total = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert len(shapes) == 24 * 12 + 9
    with torch.device("meta"):
        tower = CLIPVisionModelWithProjection(CSDConfig().clip()).state_dict()
        mapped = _clip_state(
            {
                key: torch.empty(shape)
                for key, shape in shapes.items()
                if key != "last_layer_content"
            }
        )
    assert {key: value.shape for key, value in mapped.items()} == {
        key: value.shape for key, value in tower.items()
    }
    # CLIP ViT-L/14 without projection, and two projections
    assert total == 303_179_776 + 2 * 1024 * 768
