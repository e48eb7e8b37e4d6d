"""Transparent pixels of an upload are holes for some operators; others ignore them, and say so."""

import pytest
import torch
from PIL import Image

from aps_core.engines.engine import ImageEngine
from aps_core.imaging.images import Picture
from aps_core.priors.embedded.image import EmbeddedPrior
from aps_core.tasks import Inputs, RestoreSpec, run
from tests.core.toys import FlatPrior


@pytest.mark.parametrize(
    ("operator", "opacity", "noted"),
    [
        ("denoise", 254, True),
        ("denoise", 255, False),
        ("inpainting", 0, False),
        ("inpainting with a mask", 0, True),
    ],
)
def test_a_note_says_that_transparency_was_ignored(operator, opacity, noted):
    image = Image.new("RGBA", (16, 16), (90, 120, 60, 255))
    image.putpixel((3, 4), (90, 120, 60, opacity))
    engine = ImageEngine(EmbeddedPrior(), FlatPrior(), torch.device("cpu"))
    operator, masked, _ = operator.partition(" with a mask")
    known = {"mask": "upload"} if operator == "inpainting" else {}
    hole = Picture(Image.linear_gradient("L").resize((16, 16))) if masked else None
    spec = RestoreSpec(
        operator={"type": operator, **known},
        sampler={"type": "aps", "steps": 1, "inner_steps": 1},
    )
    notes = run(spec, Inputs(Picture(image), hole), engine).notes
    assert any("transparency was ignored" in note for note in notes) == noted
