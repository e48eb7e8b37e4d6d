"""Stylization: the style distance decreases, content controls the layout, errors are explained."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from aps_core.errors import InvalidSpec, WeightsMissing
from aps_core.imaging import images
from aps_core.objectives.gram import Content, GramStyle, WeightedSum
from aps_core.samplers.prior import PriorConfig
from aps_core.sampling import driver
from aps_core.tasks import Inputs, StylizeSpec, run
from tests.engines import image_engine

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded")


def photo(name, side=64):
    picture = images.open_image((PHOTOS / f"{name}.png").read_bytes())
    return images.Picture(picture.image.resize((side, side)))


def stylized(engine, inputs, **fields):
    return run(
        StylizeSpec(
            **{
                "prompt": "a castle",
                "width": 64,
                "height": 64,
                "sampler": {"steps": 3, "inner_steps": 6},
                **fields,
            }
        ),
        inputs,
        engine,
    )


@pytest.mark.parametrize("style", ["honeybee", "coffee"])
def test_the_style_distance_is_below_the_unguided_one(engine, style):
    inputs = Inputs(style=photo(style))
    seen = []
    result: Any = run(
        StylizeSpec(prompt="a castle", width=64, height=60, sampler={"steps": 3, "inner_steps": 6}),
        inputs,
        engine,
        lambda p: seen.append(p.info.misfit),
    )
    objective = result.spec.objective(inputs, engine, 60, 64)
    alone = driver.sample(
        engine.prior,
        objective,
        PriorConfig(steps=3),
        grid=(15, 16),
        generator=torch.Generator().manual_seed(0),
        condition="a castle",
    )
    assert result.misfit_B[0] < 0.5 * float(alone.misfit_B)
    assert result.misfit_B[0] == pytest.approx(float(objective(result.pictures_BCHW)[1]), abs=0.05)
    assert seen == result.misfit_curve
    assert result.pictures_BCHW.shape[-2:] == (60, 64)


def test_the_content_strength_controls_the_layout(engine):
    content = photo("castle")
    measure = Content(engine.prior.tokenizer, images.to_tensor(content))
    weak, strong = (
        float(
            measure(
                stylized(
                    engine,
                    Inputs(image=content, style=photo("coffee")),
                    content_strength=s,
                    width=None,
                    height=None,
                ).pictures_BCHW
            )[1]
        )
        for s in (0.0, 0.8)
    )
    assert strong < 0.7 * weak


def test_style_ignores_positions_and_content_ignores_colours(engine):
    tokenizer = engine.prior.tokenizer
    x_CHW, y_CHW = (images.to_tensor(photo(name)) for name in ("castle", "coffee"))
    style = GramStyle(tokenizer, x_CHW)
    distances = [float(style(x[None])[1]) for x in (x_CHW, x_CHW.flip(-1), y_CHW)]
    assert distances[0] == pytest.approx(0, abs=1e-3)
    assert distances[1] < 0.3 * distances[2]
    content = Content(tokenizer, x_CHW)
    darker, unrelated = (float(content(x[None])[1]) for x in (0.5 * x_CHW - 0.2, y_CHW))
    assert darker < 0.5 * unrelated
    batch = torch.stack([x_CHW, y_CHW])
    torch.testing.assert_close(
        style(batch)[1], torch.tensor([distances[0], distances[2]]), atol=0.02, rtol=0
    )


def test_weights_combine_losses_and_the_misfit_is_that_of_the_first(engine):
    tokenizer, x = engine.prior.tokenizer, images.to_tensor(photo("rocket"))[None]
    one, two = (
        GramStyle(tokenizer, images.to_tensor(photo(name))) for name in ("castle", "coffee")
    )
    loss, misfit = WeightedSum([(1.0, one), (3.0, two)])(x)
    assert loss.item() == pytest.approx(one(x)[0].item() + 3 * two(x)[0].item(), rel=1e-5)
    assert misfit.item() == one(x)[1].item()


def test_csd_uses_the_papers_settings_and_names_its_missing_checkpoint(
    engine, monkeypatch, tmp_path
):
    def settings(**sampler):
        return StylizeSpec(prompt="a castle", measure={"type": "csd"}, sampler=sampler).settings()

    assert (settings().learning_rate, settings().inner_steps, settings().steps) == (0.1, 100, 15)
    assert settings(inner_steps=3).inner_steps == 3
    spec = StylizeSpec(prompt="a castle", measure={"type": "csd"})
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    with pytest.raises(WeightsMissing, match="csd-vit-l"):
        run(spec, Inputs(style=photo("coffee")), engine)


@pytest.mark.parametrize(
    ("inputs", "fields", "words"),
    [
        (Inputs(), {}, "needs the picture 'style'"),
        (Inputs(image=photo("coffee")), {}, "needs the picture 'style'"),
        (Inputs(style=photo("coffee"), mask=photo("coffee")), {}, "takes no picture 'mask'"),
        (Inputs(style=photo("coffee", 8)), {}, "needs 16 on each side"),
        (Inputs(style=photo("coffee")), {"prompt": "a castle " * 40}, "the prior reads at most 30"),
    ],
)
def test_invalid_input_is_explained(inputs, fields, words):
    with pytest.raises(InvalidSpec, match=words):
        StylizeSpec(**{"prompt": "a castle", **fields}).check_inputs(inputs)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt": " "},
        {"prompt": "x", "num_samples": 17},
        {"prompt": "x", "content_strength": 1.5},
    ],
)
def test_invalid_fields_are_rejected(fields):
    with pytest.raises(ValidationError):
        StylizeSpec(**fields)
