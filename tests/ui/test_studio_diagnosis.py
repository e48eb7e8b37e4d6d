"""The studio diagnoses a chosen picture, takes the proposal over, and names a misfit."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.stack import Stack
from tests.ui.pages import (
    SLOW,
    choose,
    comparison,
    downloaded,
    ended,
    findings,
    sampler,
    submit,
)
from tests.ui.widths import too_wide
from training.diagnosis.simulate import filtered, gaussian_kernel, to_image

EXAMPLES = Path(__file__).parents[2] / "examples"


def file(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def blurred(path: str, side: int, width: float) -> bytes:
    """The middle of an example, blurred."""
    image = Image.open(EXAMPLES / path).convert("RGB")
    left, top = (image.width - side) // 2, (image.height - side) // 2
    x = np.asarray(image.crop((left, top, left + side, top + side))) / 127.5 - 1
    return file(to_image(filtered(x, gaussian_kernel(width))))


@pytest.mark.parametrize("width", [390, 1280])
def test_somebody_who_knows_nothing_restores_compares_corrects_and_downloads(
    page: Page, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 850})
    choose(page, blurred("photos/chelsea.png", 96, 2.0))
    panel = page.get_by_role("region", name="Diagnosis")
    expect(panel.get_by_role("status")).to_have_text(
        re.compile("Soft: a Gaussian blur of about [12].[0-9] pixels")
    )
    assert findings(page) == []
    assert too_wide(page, "diagnosed") == []
    page.locator(".chip:has([value=fast])").click()
    panel.get_by_role("button", name="Restore what was found").click()
    expect(page.locator(".job")).to_be_visible(timeout=SLOW)
    ended(page, "Restored")
    undone = page.get_by_role("region", name="What was undone")
    expect(undone).to_contain_text("Taken as a Gaussian blur of")
    blur = undone.get_by_role("img", name="The blur, as the picture of a point of light")
    assert blur.evaluate("async (img) => { await img.decode(); return img.naturalWidth; }") > 10
    expect(comparison(page)).to_be_visible()
    assert Image.open(io.BytesIO(downloaded(page, "Download PNG"))).size == (96, 96)
    assert findings(page) == []
    assert too_wide(page, "restored") == []
    undone.get_by_role("button", name="Not right? Correct it").click()
    expect(page.locator("[value=gaussian_blur]")).to_be_checked()
    used = float(page.locator('[data-pointer="/operator/sigma"]').input_value())
    assert 1.5 < used < 2.5
    expect(page.get_by_text(re.compile(", 96 × 96 pixels"))).to_be_visible()


def test_the_diagnosis_is_corrected_before_or_names_nothing(page: Page) -> None:
    choose(page, blurred("photos/coffee.png", 256, 2.0))
    panel = page.get_by_role("region", name="Diagnosis")
    panel.get_by_role("button", name="Correct it first").click()
    expect(page.locator("[value=gaussian_blur]")).to_be_checked()
    expect(page.locator("[value=gaussian_blur]")).to_be_focused()
    width = page.locator('[data-pointer="/operator/sigma"]').input_value()
    assert 1.5 < float(width) < 2.5
    choose(page, (EXAMPLES / "photos/coffee.png").read_bytes(), "sharp.png")
    expect(panel.get_by_role("status")).to_have_text("Nothing seems to be wrong with this picture.")
    expect(panel.get_by_role("button", name="Restore what was found")).to_be_hidden()
    # restoring it all the same is no failure
    page.locator(".chip:has([value=auto])").click()
    page.locator(".chip:has([value=fast])").click()
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("heading", name="Left as it is")).to_be_visible(timeout=SLOW)
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text(
        "Nothing seems to be wrong with this picture. There is nothing to restore. To restore it"
        " anyway, choose what happened to it, for example “Noise only”."
    )
    for about_a_result in ("The result is a plausible sample", "Tokens"):
        expect(page.locator(".job").get_by_text(about_a_result)).to_be_hidden()
    expect(page.get_by_role("alert")).to_be_hidden()
    assert findings(page) == []
    assert too_wide(page, "left-as-it-is") == []


def test_a_job_is_run_again_with_the_prior_that_the_service_chose(page: Page, stack: Stack) -> None:
    """Although the diagnosis of its picture proposes none."""
    choose(page, (EXAMPLES / "photos/coffee.png").read_bytes(), "sharp.png")
    page.locator(".chip:has([value=denoise])").click()
    page.locator(".chip:has([value=fast])").click()
    page.get_by_text("More settings").click()
    page.get_by_label("Longest side of the result").fill("64")
    first = stack.job(submit(page))
    ended(page, "Restored")
    page.get_by_role("button", name="Edit and run again").click()
    panel = page.get_by_role("region", name="Diagnosis")
    expect(panel.get_by_role("status")).to_have_text("Nothing seems to be wrong with this picture.")
    again = stack.job(submit(page))
    assert again["id"] != first["id"]
    assert again["spec"] == first["spec"]
    assert first["prior"] == "embedded_denoiser"


@pytest.mark.parametrize("width", [390, 1280])
def test_letters_of_a_page_may_be_guesses(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 850})
    choose(page, blurred("documents/page-karla.png", 128, 2.0), "page.png")
    panel = page.get_by_role("region", name="Diagnosis")
    expect(panel.get_by_text("letters and digits may be guesses")).to_be_visible()
    expect(panel.get_by_text("the prior trained on documents is chosen")).to_be_visible()
    page.locator(".chip:has([value=fast])").click()
    sampler(page, steps=1, inner_steps=1)
    panel.get_by_role("button", name="Restore what was found").click()
    expect(page.locator(".job")).to_be_visible(timeout=SLOW)
    ended(page, "Restored")
    expect(page.get_by_role("note")).to_contain_text("check them against the original")
    facts = page.locator(".job")
    expect(facts).to_contain_text("Pages and screens")
    assert findings(page) == []
    assert too_wide(page, "page") == []


def test_the_search_for_the_blur_of_a_shaken_camera_is_named(
    page: Page, complaints: list[str]
) -> None:
    """So that the estimate of the time includes it. The job itself would take a minute."""
    scan = Image.open(EXAMPLES / "documents/scan-1400.png").convert("RGB")
    turns, edges = np.linspace(0, 4, 400), np.arange(14) - 6.5
    arc = np.histogram2d(6 * np.sin(turns), 6 * np.cos(turns), bins=(edges, edges))[0]
    x = filtered(np.asarray(scan) / 127.5 - 1, arc / arc.sum())
    choose(page, file(to_image(x + 0.02 * np.random.default_rng(0).standard_normal(x.shape))))
    panel = page.get_by_role("region", name="Diagnosis")
    expect(panel.get_by_role("status")).to_contain_text("shaken camera")
    assert findings(page) == []
    page.route("**/v1/restore", lambda route: route.abort())
    with page.expect_request("**/v1/restore") as sent:
        panel.get_by_role("button", name="Restore what was found").click()
    assert b"free_kernel" in (sent.value.post_data_buffer or b"")
    expect(page.locator("[value=blind]")).to_be_checked()
    expect(page.get_by_role("alert")).to_be_visible()
    assert all("ERR_FAILED" in text for text in complaints)  # of the request cut off here
    complaints.clear()


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
    assert too_wide(page, "does-not-agree") == []
