"""VGG16 features and LPIPS: published keys and shapes, agreement with torchmetrics, use in the
objective.
"""

from typing import Any

import pytest
import torch
import torchmetrics.functional.image.lpips as theirs
from PIL import Image
from safetensors.torch import save_file

from aps_core.engines.engine import ImageEngine
from aps_core.errors import InvalidSpec, WeightsInvalid, WeightsMissing
from aps_core.evaluation.lpips import load_lpips
from aps_core.imaging import images
from aps_core.losses.measurement import MeasurementLoss
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.objectives.vgg16_net import VGG16, load_vgg16
from aps_core.operators import Bound
from aps_core.priors.mmada.spec import MMaDA8B
from aps_core.tasks import Inputs, RestoreSpec, run
from tests.engines import image_engine

# index of every convolution in the published network, with its channels in and out
CONVOLUTIONS = {
    0: (3, 64),
    2: (64, 64),
    5: (64, 128),
    7: (128, 128),
    10: (128, 256),
    12: (256, 256),
    14: (256, 256),
    17: (256, 512),
    19: (512, 512),
    21: (512, 512),
    24: (512, 512),
    26: (512, 512),
    28: (512, 512),
}


def published_vgg():
    """The published feature stack with its layer indices and random weights."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for index in range(31):
        if index in CONVOLUTIONS:
            conv = torch.nn.Conv2d(*CONVOLUTIONS[index], 3, padding=1)
            torch.nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            torch.nn.init.normal_(conv.bias, std=0.1)
            layers.append(conv)
        else:
            layers.append(torch.nn.ReLU() if index - 1 in CONVOLUTIONS else torch.nn.MaxPool2d(2))
    return torch.nn.Sequential(*layers)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """(published feature stack, weights folder with feature and classifier files, torchmetrics'
    metric with its released heads).
    """
    root = tmp_path_factory.mktemp("weights")
    stack = published_vgg()
    (root / "vgg16").mkdir()
    state = {f"features.{k}": v for k, v in stack.state_dict().items()}
    save_file(
        {**state, "classifier.0.weight": torch.zeros(2, 2)}, root / "vgg16" / "model.safetensors"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theirs, "_get_tv_model_features", lambda *_: stack)
        metric = theirs._NoTrainLpips(net="vgg", pretrained=True, pnet_rand=True)
    save_file(
        {k: v for k, v in metric.state_dict().items() if k.startswith("lin") and k[3].isdigit()},
        root / "heads.safetensors",
    )
    return stack, root, metric


def pictures(seed, size=(40, 56)):
    return torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_published_keys_and_shapes():
    shapes = {key: tuple(value.shape) for key, value in VGG16().state_dict().items()}
    expected = {
        f"features.{i}.weight": (c_out, c_in, 3, 3) for i, (c_in, c_out) in CONVOLUTIONS.items()
    }
    assert shapes == expected | {
        f"features.{i}.bias": (c_out,) for i, (_, c_out) in CONVOLUTIONS.items()
    }


def test_lpips_is_torchmetrics(files):
    _, root, metric = files
    ours = load_lpips(root / "vgg16" / "model.safetensors", root / "heads.safetensors")
    x, y = pictures(1), pictures(2)
    distance = ours(x, y)
    torch.testing.assert_close(distance, metric(x, y).flatten(), atol=1e-6, rtol=1e-5)
    assert distance.min() > 0.05
    torch.testing.assert_close(ours(x, x), torch.zeros(2))


def test_features_are_five_activations(files):
    stack, root, _ = files
    x = pictures(3)
    normalised = ((x + 1) / 2 - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor(
        [0.229, 0.224, 0.225]
    ).view(3, 1, 1)
    for features, last in zip(
        load_vgg16(root / "vgg16" / "model.safetensors")(x), (3, 8, 15, 22, 29), strict=True
    ):
        torch.testing.assert_close(features, stack[: last + 1](normalised))


def test_only_the_picture_gets_gradients(files):
    vgg = load_vgg16(files[1] / "vgg16" / "model.safetensors")
    objective = MeasurementObjective(
        Bound(lambda x: x), pictures(4)[0], 0.0, perceptual=vgg, perceptual_weight=1e-3
    )
    x = pictures(5).requires_grad_()
    loss, _ = objective(x)
    loss.sum().backward()
    assert (x.grad.flatten(1).abs().amax(1) > 0).all()
    assert not any(p.requires_grad for p in vgg.parameters())


def test_the_requested_extractor_is_used(files, monkeypatch):
    """VGG16 is loaded once if selected; if it is missing, an error is raised."""
    engine = image_engine("embedded")
    y = pictures(6, (32, 32))[0]
    objectives: dict[str, Any] = {}
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(files[1]))
    for kind in ("tokenizer", "vgg16"):
        objectives[kind] = engine.measurement_objective(
            Bound(lambda x: x), y, 0.0, MeasurementLoss(perceptual=kind, perceptual_weight=1e-3)
        )
    assert isinstance(objectives["vgg16"].perceptual, VGG16)
    assert not isinstance(objectives["tokenizer"].perceptual, VGG16)
    again: Any = engine.measurement_objective(
        Bound(lambda x: x), y, 0.0, MeasurementLoss(perceptual="vgg16", perceptual_weight=1e-3)
    )
    assert again.perceptual is objectives["vgg16"].perceptual
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(files[1] / "nowhere"))
    fresh = ImageEngine(engine.spec, engine.prior, engine.device)
    with pytest.raises(WeightsMissing, match="vgg16"):
        fresh.measurement_objective(
            Bound(lambda x: x), y, 0.0, MeasurementLoss(perceptual="vgg16", perceptual_weight=1e-3)
        )
    # not needed, not read
    fresh.measurement_objective(
        Bound(lambda x: x), y, 0.0, MeasurementLoss(perceptual="vgg16", perceptual_weight=0)
    )


def test_the_published_prior_uses_vgg16_if_installed_and_notes_if_not(files, monkeypatch, tmp_path):
    """'auto' is resolved by the worker; the result names the extractor."""
    engine = image_engine("embedded")
    assert MMaDA8B.recommended_loss == {"measurement": {"perceptual": "auto"}}
    photo = images.Picture(Image.new("RGB", (32, 32), (90, 120, 60)))
    spec = RestoreSpec(
        operator={"type": "denoise"},
        sigma=0.1,
        sampler={"steps": 1, "inner_steps": 1},
        loss={"perceptual_weight": 1e-3, "perceptual": "auto"},
    )
    assert spec.checkpoints == ()  # a worker without VGG16 may take it
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    without: Any = run(spec, Inputs(photo), engine)
    assert without.spec.loss.perceptual == "tokenizer"
    assert any("not of VGG16" in n and "aps weights fetch vgg16" in n for n in without.notes)
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(files[1]))
    there: Any = run(spec, Inputs(photo), engine)
    assert there.spec.loss.perceptual == "vgg16"
    assert there.notes == []
    assert there.fingerprint != without.fingerprint


def test_invalid_files_are_rejected(files, tmp_path):
    vgg = load_vgg16(files[1] / "vgg16" / "model.safetensors")
    with pytest.raises(InvalidSpec, match="16 pixels"):
        vgg(torch.zeros(1, 3, 15, 40))
    torch.save(files[0].state_dict(), tmp_path / "vgg16.pth")
    with pytest.raises(WeightsInvalid, match="pickle"):
        load_vgg16(tmp_path / "vgg16.pth")
    save_file({"lin0.model.1.weight": torch.zeros(1, 64, 1, 1)}, tmp_path / "heads.safetensors")
    with pytest.raises(WeightsInvalid, match=r"'lin1\.model\.1\.weight' is missing"):
        load_lpips(files[1] / "vgg16" / "model.safetensors", tmp_path / "heads.safetensors")
