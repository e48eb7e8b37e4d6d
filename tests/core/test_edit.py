"""Editing: known pixels stay unchanged, new ones follow the prompt, errors are explained."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from aps_core.errors import ImageTooLarge, InvalidSpec
from aps_core.imaging.blending import filled, joined
from aps_core.imaging.images import Picture, mask_to_tensor, to_pil, to_tensor
from aps_core.tasks import EditSpec, Inputs, run
from aps_core.tasks.edit import known_tokens
from aps_core.tasks.estimate import check_size
from aps_core.types import MASK
from tests.engines import image_engine

QUICK = {"steps": 3, "inner_steps": 3}


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded")


def photo(width=50, height=38, mode="RGB"):
    rows, columns = np.mgrid[:height, :width]
    noise = np.random.default_rng(0).integers(0, 30, (height, width))
    return Picture(
        Image.fromarray(
            np.stack([rows * 5 % 200 + noise, columns * 4 % 200 + noise, 90 + noise], -1).astype(
                np.uint8
            )
        ).convert(mode)
    )


def mask(picture, box):
    image = Image.new("L", (picture.width, picture.height), 255)
    image.paste(0, box)
    return Picture(image)


def edited(engine, inputs, **fields):
    return run(EditSpec(**{"prompt": "a red flower", "sampler": QUICK, **fields}), inputs, engine)


def pixels(result, sample=0):
    return np.asarray(to_pil(result.pictures_BCHW[sample]))


def test_known_pixels_are_unchanged_and_the_prompt_affects_the_others(engine):
    picture = photo()
    inputs = Inputs(picture, mask(picture, (13, 9, 38, 30)))
    flower, night = (
        edited(engine, inputs, num_samples=2),
        edited(engine, inputs, num_samples=2, prompt="a dark night sky"),
    )
    known = np.asarray(inputs.mask.image) > 0
    for sample in (0, 1):
        assert np.array_equal(pixels(flower, sample)[known], np.asarray(picture.image)[known])
        assert not np.array_equal(pixels(flower, sample)[~known], pixels(night, sample)[~known])
    assert not np.array_equal(pixels(flower, 0), pixels(flower, 1))


def test_masked_pixels_do_not_affect_the_result(engine):
    picture = photo()
    hole = mask(picture, (13, 9, 38, 30))
    other = picture.image.copy()
    other.paste((255, 0, 255), (13, 9, 38, 30))
    assert np.array_equal(
        pixels(edited(engine, Inputs(picture, hole))),
        pixels(edited(engine, Inputs(Picture(other), hole))),
    )


def test_known_tokens_come_from_the_encoder_and_stay_fixed(engine):
    picture = photo(52, 40)
    hole = mask(picture, (14, 10, 36, 30))
    y_CHW, known_HW = to_tensor(picture), mask_to_tensor(hole)
    z_L = known_tokens(engine, y_CHW * known_HW, known_HW)[0]
    inside = torch.nn.functional.max_pool2d(1 - known_HW[None], 4)[0].flatten() > 0
    assert torch.equal(z_L == MASK, inside)
    events = []
    result: Any = run(
        EditSpec(prompt="a red flower", sampler=QUICK),
        Inputs(picture, hole),
        engine,
        lambda progress: events.append(progress.event()),
    )
    assert torch.equal(result.codes_BL[0][~inside], z_L[~inside])
    assert events[0]["known"] == (~inside).nonzero().flatten().tolist(), (
        "told with the first step, and not again"
    )
    assert not any("known" in event for event in events[1:])


def test_outpainting_extends_every_side_and_keeps_known_pixels(engine):
    picture = photo(33, 29)
    spec = EditSpec(prompt="a meadow", left=6, top=3, right=9, bottom=12, sampler=QUICK)
    assert spec.output_size((33, 29)) == (48, 44)
    result: Any = run(spec, Inputs(picture), engine)
    assert np.array_equal(pixels(result)[3:32, 6:39], np.asarray(picture.image))
    assert result.pictures_BCHW.shape[-2:] == (44, 48)


def test_a_large_photo_is_edited_at_low_resolution_and_keeps_its_size(engine):
    picture = photo(200, 152)
    inputs = Inputs(picture, mask(picture, (80, 40, 150, 110)))
    spec = EditSpec(prompt="a red flower", working_size=64, sampler=QUICK)
    assert (spec.sampled_size((200, 152)), spec.output_size((200, 152))) == ((64, 49), (200, 152))
    result = run(spec, inputs, engine)
    known = np.asarray(inputs.mask.image) > 0
    assert np.array_equal(pixels(result)[known], np.asarray(picture.image)[known])
    assert "enlarged" in result.notes[0]
    check_size(spec, (200, 152), 64 * 64, 1e-4)
    with pytest.raises(ImageTooLarge, match="working_size"):
        check_size(EditSpec(prompt="x"), (200, 152), 64 * 64, 1e-4)


def test_transparency_masks_gray_pictures_and_tiny_holes(engine):
    picture = photo().image.convert("RGBA")
    picture.putpixel((20, 20), (1, 2, 3, 0))
    result = edited(engine, Inputs(Picture(picture)))
    same = (pixels(result) == np.asarray(picture)[..., :3]).all(-1)
    assert np.argwhere(~same).tolist() == [[20, 20]]
    grey = photo(mode="L")
    assert edited(engine, Inputs(grey, mask(grey, (0, 0, 20, 38)))).pictures_BCHW.shape[-2:] == (
        38,
        50,
    )


def test_a_resumed_edit_gives_the_same_pixels(engine):
    picture = photo()
    inputs, saved = Inputs(picture, mask(picture, (13, 9, 38, 30))), []
    spec = EditSpec(prompt="a red flower", sampler=QUICK)
    whole: Any = run(spec, inputs, engine, lambda progress: saved.append(progress.checkpoint()))
    again: Any = run(spec, inputs, engine, resume=saved[0])
    assert torch.equal(again.pictures_BCHW, whole.pictures_BCHW)


def test_blending_changes_pixels_only_inside_the_mask():
    truth = torch.full((3, 40, 40), 0.5)
    known = torch.ones(40, 40)
    known[:, 20:] = 0
    drawn = torch.zeros(1, 3, 40, 40)
    soft, hard = (joined(drawn, truth, known, feather)[0, 0, 20] for feather in (8, 0))
    assert torch.equal(soft[:20], truth[0, 0, :20])
    assert hard[20] == 0
    assert soft[20] > 0.4
    assert (soft[20:].diff() <= 0).all()
    assert soft[32:].abs().max() < 0.01
    assert filled(truth * known, known).sub(truth).abs().max() < 1e-4


@pytest.mark.parametrize("side", [0, 1, 4])
def test_filling_ends_far_from_few_known_pixels(side):
    known = torch.zeros(61, 97)
    known[:side, :side] = 1
    result = filled(torch.full((3, 61, 97), 0.3), known)
    assert torch.allclose(result, torch.tensor(0.3 if side else 0.0))


@pytest.mark.parametrize(
    ("inputs", "fields", "words"),
    [
        (Inputs(), {}, "needs the picture 'image'"),
        (Inputs(photo(), mask(photo(40, 40), (0, 0, 9, 9))), {}, "must have the same size"),
        (Inputs(photo()), {}, "No part to regenerate is marked"),
        (Inputs(photo(), mask(photo(), (0, 0, 50, 38))), {}, "covers the whole picture"),
        (Inputs(photo(), mask(photo(), (0, 0, 0, 0))), {}, "covers nothing"),
        (Inputs(photo(mode="RGBA")), {}, "covers nothing"),
        (Inputs(photo(), None, photo()), {"left": 4}, "takes no picture 'style'"),
        (Inputs(photo()), {"left": 4, "prompt": "a flower " * 40}, "the prior reads at most 30"),
    ],
)
def test_invalid_input_is_explained(inputs, fields, words):
    with pytest.raises(InvalidSpec, match=words):
        EditSpec(**{"prompt": "a flower", **fields}).check_inputs(inputs)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt": ""},
        {"prompt": "  "},
        {"prompt": "x", "num_samples": 17},
        {"prompt": "x", "left": -1},
    ],
)
def test_invalid_fields_are_rejected(fields):
    with pytest.raises(ValidationError):
        EditSpec(**fields)
