"""The studio diagnoses a chosen picture, takes the proposal over, and names a misfit."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, expect

from tests.ui.pages import choose, sampler, submit
from training.diagnosis.simulate import filtered, gaussian_kernel, to_image

EXAMPLES = Path(__file__).parents[2] / "examples"


def file(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_a_blurred_picture_is_diagnosed_and_the_proposal_taken_over(page: Page) -> None:
    photo = Image.open(EXAMPLES / "photos/coffee.png").convert("RGB")
    x = np.asarray(photo) / 127.5 - 1
    choose(page, file(to_image(filtered(x, gaussian_kernel(2.0)))))
    panel = page.get_by_role("region", name="Diagnosis")
    expect(panel.get_by_role("status")).to_have_text(
        re.compile("Soft: a Gaussian blur of about [12].[0-9] pixels")
    )
    panel.get_by_role("button", name="Use these settings").click()
    expect(page.locator("[value=gaussian_blur]")).to_be_checked()
    width = page.locator('[data-pointer="/operator/sigma"]').input_value()
    assert 1.5 < float(width) < 2.5
    choose(page, file(photo), "sharp.png")
    expect(panel.get_by_role("status")).to_have_text("Nothing seems to be wrong with this picture.")
    expect(panel.get_by_role("button")).to_be_hidden()


def test_a_result_of_the_wrong_operator_is_not_called_restored(page: Page) -> None:
    stripes = np.tile(np.repeat([0, 255], 3), (48, 8)).astype(np.uint8)
    choose(page, file(Image.fromarray(stripes)))
    page.locator(".chip:has([value=gaussian_blur])").click()
    page.locator('[data-pointer="/operator/sigma"]').fill("3")
    sampler(page, steps=2, inner_steps=2)
    submit(page)
    heading = page.get_by_role("heading", name="Does not agree with your picture", exact=True)
    expect(heading).to_be_visible(timeout=60_000)
    expect(page.get_by_text("probably not a Gaussian blur of 3 pixels")).to_be_visible()
