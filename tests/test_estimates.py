"""Estimates before a job, against the job."""

import time
from pathlib import Path

import pytest
from PIL import Image

from aps_core.imaging.images import Picture
from aps_core.operators.denoise import Denoise
from aps_core.runtime.process import reproducible
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.tasks.estimate import estimate
from tests.engines import image_engine

PHOTO = Path(__file__).parents[1] / "examples" / "photos" / "coffee.png"

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("side", [128, 256])
def test_a_restoration_takes_about_the_time_that_was_estimated(side):
    """Within a factor of 2.5: first estimate, prior, correction and verdict count, and attention
    grows with the square of the size. Inner steps alone are a quarter of it.
    """
    spec = RestoreSpec(operator=Denoise(type="denoise"), sigma=0.05, preset="fast")
    photo = Image.open(PHOTO).resize((side, side))
    with reproducible(threads=1):
        engine = image_engine("embedded")
        said = estimate(spec, (side, side), engine.seconds_per_token()).seconds
        start = time.perf_counter()
        run(spec, Inputs(Picture(photo)), engine)
        taken = time.perf_counter() - start
    assert said / 2.5 < taken < said * 2.5
