"""The studio in a real browser, against the real service."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from pydantic import BaseModel, Field
from stack import Stack, png

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "APS_REQUIRE_BROWSER" not in os.environ, reason="the studio's tests drive chromium, which is not installed"
)

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SLOW = 60_000
"""Milliseconds a small job may take on a busy machine."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained about: errors on the console, uncaught exceptions, refusals by the content policy."""
    return []


@pytest.fixture
def page(browser: Browser, stack: Stack, complaints: list[str]) -> Iterator[Page]:
    """The studio, open and ready. A test that leaves complaints unexplained fails."""
    page = browser.new_page(base_url=stack.url, viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto("/")
    expect(page.get_by_role("heading", name="Restore a picture")).to_be_visible()
    yield page
    page.close()
    assert complaints == []


def choose(page: Page, image: bytes, name: str = "photo.png") -> None:
    page.locator("#image").set_input_files({"name": name, "mimeType": "image/png", "buffer": image})


def sampler(page: Page, steps: int, inner_steps: int) -> None:
    page.get_by_text("Sampler", exact=True).click()
    page.get_by_label("Steps", exact=True).fill(str(steps))
    page.get_by_label("Inner steps").fill(str(inner_steps))


def submit(page: Page) -> str:
    """Submits; returns the job's id."""
    page.get_by_role("button", name="Restore", exact=True).click()
    page.wait_for_url(re.compile(r"#[0-9a-f-]{36}$"))
    return page.url.partition("#")[2]


def slider(page: Page) -> Locator:
    return page.get_by_role("slider")


def test_a_chosen_picture_is_restored_and_compared_and_downloaded(page: Page, stack: Stack, tmp_path: Path) -> None:
    choose(page, png(32, 32))
    expect(page.get_by_text("photo.png, 32 × 32 pixels")).to_be_visible()
    page.get_by_text("Low resolution", exact=True).click()
    page.get_by_label("Factor").select_option("2")
    page.get_by_label("Noise", exact=True).fill("0.1")
    page.get_by_label("Seed").fill("7")
    sampler(page, 6, 4)
    job_id = submit(page)

    preview = page.get_by_role("img", name="Current estimate of the picture")
    expect(preview).to_be_visible(timeout=SLOW)
    expect(preview).to_have_attribute("src", re.compile(rf"{job_id}/previews/\d+$"))
    expect(page.get_by_role("heading", name="Restored")).to_be_visible(timeout=SLOW)
    expect(page.get_by_role("img", name=re.compile("Data misfit after step 6"))).to_be_visible()

    spec = stack.job(job_id)["spec"]
    assert spec["operator"] == {"type": "super_resolution", "factor": 2}
    assert (spec["sigma"], spec["seed"]) == (0.1, 7)
    sampler_spec = spec["sampler"]
    assert (sampler_spec["steps"], sampler_spec["inner_steps"]) == (6, 4)

    after = page.get_by_role("img", name="The restored picture")
    assert after.evaluate("image => image.complete && image.naturalWidth") == 64
    before = after.evaluate("image => getComputedStyle(image).clipPath")
    slider(page).focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(slider(page)).to_have_attribute("aria-valuetext", "53 % restored")
    assert after.evaluate("image => getComputedStyle(image).clipPath") != before

    with page.expect_download() as download:
        page.get_by_role("link", name="Download PNG").click()
    path = tmp_path / "result.png"
    download.value.save_as(path)
    assert path.read_bytes() == stack.artifact(job_id, "result.png")
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        assert (image.format, image.size) == ("PNG", (64, 64))
    expect(page.get_by_text("not evidence").locator("visible=true")).to_be_visible()

    page.get_by_role("button", name="Restore another").click()
    expect(page.get_by_text("photo.png, 32 × 32 pixels")).to_be_visible()
    assert page.url.partition("#")[2] == ""


@pytest.mark.parametrize(("event", "field"), [("drop", "dataTransfer"), ("paste", "clipboardData")])
def test_a_picture_can_be_dropped_or_pasted(page: Page, event: str, field: str) -> None:
    page.locator("#drop").evaluate(
        """async (drop, [event, field]) => {
            const canvas = Object.assign(document.createElement("canvas"), { width: 24, height: 16 });
            canvas.getContext("2d").fillRect(0, 0, 9, 9);
            const blob = await new Promise((done) => canvas.toBlob(done));
            const carried = new DataTransfer();
            carried.items.add(new File([blob], "carried.png", { type: "image/png" }));
            const Kind = event === "drop" ? DragEvent : ClipboardEvent;
            drop.dispatchEvent(new Kind(event, { bubbles: true, cancelable: true, [field]: carried }));
        }""",
        [event, field],
    )
    expect(page.get_by_text("24 × 16 pixels")).to_be_visible()


def test_the_form_offers_every_operator_with_the_fields_of_its_schema(page: Page, stack: Stack) -> None:
    described = stack.http.get("/v1/capabilities").json()
    assert page.get_by_role("radio").count() == len(described["operators"])
    for operator in described["operators"]:
        page.locator(f".chip:has([value={operator['type']}])").click()
        for name, field in operator["schema"].get("properties", {}).items():
            if field.get("type") in ("number", "integer") and "enum" not in field:
                control = page.locator(f'[data-pointer="/operator/{name}"]')
                expect(control).to_have_value(str(field["default"]).removesuffix(".0"))
                if "minimum" in field:
                    expect(control).to_have_attribute("min", str(field["minimum"]))


class Haze(BaseModel):
    """An operator nobody told the page about."""

    type: Literal["haze"] = "haze"
    density: float = Field(0.5, ge=0, le=1, description="Share of the light that was scattered.")
    layers: int = Field(3, gt=0, lt=9)
    colour: Literal["white", "brown"] = "brown"
    moving: bool = False
    note: str | None = Field(None, max_length=20)
    shift: float


def test_an_operator_the_page_has_never_seen_gets_a_form(page: Page) -> None:
    page.evaluate(
        """async (schema) => {
            const { control } = await import("/form.js");
            window.haze = control(schema, {}, "/operator", undefined);
            document.body.replaceChildren(window.haze.element);
        }""",
        Haze.model_json_schema(),
    )
    assert page.evaluate("window.haze.read()") == {"density": 0.5, "layers": 3, "colour": "brown", "moving": False}
    expect(page.get_by_label("Density")).to_have_accessible_description("Share of the light that was scattered.")
    layers = page.get_by_label("Layers")
    assert [layers.get_attribute(name) for name in ("min", "max", "step")] == ["1", "8", "1"]
    page.get_by_label("Density").fill("0.25")
    page.get_by_label("Colour").select_option("White")
    page.get_by_label("Moving").select_option("Yes")
    page.get_by_label("Note").fill("at dawn")
    page.get_by_label("Shift").fill("-1.5")
    filled = {"density": 0.25, "layers": 3, "colour": "white", "moving": True, "note": "at dawn", "shift": -1.5}
    assert page.evaluate("window.haze.read()") == filled
    assert Haze.model_validate(filled).shift == -1.5


@pytest.mark.parametrize("name", ["Coffee", "Cat", "Rocket", "Astronaut"])
def test_a_sample_brings_its_settings(page: Page, stack: Stack, name: str) -> None:
    samples = {entry["name"]: entry["spec"] for entry in stack.http.get("/samples/index.json").json()}
    sample = page.get_by_role("button", name=re.compile(f"^{name}"))
    sample.click()
    expect(sample).to_have_attribute("aria-pressed", "true")
    sampler(page, 1, 1)
    job = stack.job(submit(page))
    wanted = samples[{"Cat": "chelsea"}.get(name, name.lower())]
    assert job["spec"]["operator"].items() >= wanted["operator"].items()
    assert job["spec"]["sigma"] == wanted["sigma"]
    assert job["output_size"] == [128, 128]
    expect(page.get_by_role("heading", name="Restored")).to_be_visible(timeout=SLOW)


def test_fields_that_do_not_matter_are_not_shown(page: Page) -> None:
    page.get_by_text("Missing pixels", exact=True).click()
    expect(page.get_by_label("Fraction")).to_be_hidden()
    page.locator('[data-pointer="/operator/mask"]').select_option(label="Random")
    expect(page.get_by_label("Fraction")).to_be_visible()
    expect(page.get_by_label("Top")).to_be_hidden()


def test_every_sample_that_was_drawn_can_be_looked_at(page: Page) -> None:
    choose(page, png(32, 32))
    page.get_by_text("More settings").click()
    page.get_by_label("Number of samples").fill("2")
    sampler(page, 1, 1)
    job_id = submit(page)
    second = page.get_by_role("button", name="Sample 2")
    expect(second).to_be_visible(timeout=SLOW)
    second.click()
    expect(second).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("img", name="The restored picture")).to_have_attribute("src", re.compile(rf"{job_id}/artifacts/sample-2\.png$"))
    expect(page.get_by_role("link", name="Download PNG")).to_have_attribute("href", re.compile("sample-2"))


def test_several_degradations_are_sent_in_their_order(page: Page, stack: Stack) -> None:
    choose(page, png(32, 32))
    page.get_by_text("Several", exact=True).click()
    page.get_by_role("combobox", name="Degradation").select_option("denoise")
    page.get_by_role("button", name="Add a degradation").click()
    page.get_by_role("combobox", name="Degradation").nth(1).select_option("jpeg")
    page.get_by_label("Quality").fill("30")
    sampler(page, 1, 1)
    operator = stack.job(submit(page))["spec"]["operator"]
    stages = next(value for value in operator.values() if isinstance(value, list))
    assert stages == [{"type": "denoise"}, {"type": "jpeg", "quality": 30}]


def test_a_mask_is_asked_for_and_sent_when_the_operator_needs_one(page: Page, stack: Stack) -> None:
    choose(page, png(32, 32))
    mask = page.get_by_label("Mask", exact=True).and_(page.locator("[type=file]"))
    expect(mask).to_be_hidden()
    page.get_by_text("Missing pixels", exact=True).click()
    mask.set_input_files({"name": "mask.png", "mimeType": "image/png", "buffer": png(32, 32, "L")})
    sampler(page, 1, 1)
    assert "mask.png" in {artifact["name"] for artifact in stack.job(submit(page))["artifacts"]}


def test_what_the_service_refuses_is_said_in_words(page: Page, complaints: list[str]) -> None:
    alert = page.get_by_role("alert")
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(alert).to_contain_text("Choose a picture first")

    choose(page, b"no picture at all", "broken.png")
    expect(alert).to_contain_text("broken.png")

    choose(page, png(32, 32, image_format="GIF"), "drawing.gif")  # browsers show it, the service does not take it
    expect(page.get_by_text("drawing.gif, 32 × 32 pixels")).to_be_visible()
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(alert).to_contain_text("PNG, JPEG, WEBP")
    expect(page.get_by_role("button", name="Restore", exact=True)).to_be_enabled()
    assert [text for text in complaints if "422" in text]
    complaints.clear()


def test_a_value_out_of_range_is_marked_at_its_field(page: Page) -> None:
    choose(page, png(32, 32))
    page.get_by_label("Noise", exact=True).fill("3")
    page.get_by_role("button", name="Restore", exact=True).click()
    noise = page.get_by_label("Noise", exact=True)
    expect(noise).to_have_attribute("aria-invalid", "true")
    expect(noise).to_be_focused()
    noise.fill("0.1")
    expect(noise).to_have_attribute("aria-invalid", "false")


def test_a_reload_resumes_a_running_job_and_cancel_ends_it(page: Page, stack: Stack) -> None:
    choose(page, png(64, 64))
    page.get_by_text("Noise only", exact=True).click()
    sampler(page, 60, 20)
    job_id = submit(page)
    expect(page.get_by_text(re.compile(r"Step \d+ of 60"))).to_be_visible(timeout=SLOW)
    page.reload()
    expect(page.get_by_text(re.compile(r"Step \d+ of 60"))).to_be_visible(timeout=SLOW)
    expect(page.get_by_role("img", name="Current estimate of the picture")).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="Canceled")).to_be_visible(timeout=SLOW)
    assert stack.job(job_id)["state"] == "canceled"


def test_a_job_that_is_not_known_leads_back_to_the_form(page: Page, complaints: list[str]) -> None:
    page.goto("/#no-such-job")
    expect(page.get_by_role("alert")).to_contain_text("no-such-job")
    expect(page.get_by_role("heading", name="Restore a picture")).to_be_visible()
    complaints.clear()


def test_a_phone_shows_everything_without_scrolling_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    width = "() => document.documentElement.scrollWidth"
    for summary in page.locator("summary").all():
        summary.click()
    for chip in page.locator(".chip").all():
        chip.click()
        assert page.evaluate(width) <= 390
    page.get_by_role("button", name="Coffee").click()
    page.get_by_label("Steps", exact=True).fill("1")
    page.get_by_label("Inner steps").fill("1")
    submit(page)
    expect(slider(page)).to_be_visible(timeout=SLOW)
    assert page.evaluate(width) <= 390


def test_the_page_is_light_and_keeps_to_its_own_host() -> None:
    folder = Path(__file__).parents[2] / "service" / "ui"
    files = [path for path in folder.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    for path in files:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path.name
        assert "https://" not in text, path.name
    assert not re.search(r"\sstyle=|\son\w+=|<script>|<style", (folder / "index.html").read_text())
