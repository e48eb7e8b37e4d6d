"""The studio's forms: generation from schemas, samples, error messages."""

from __future__ import annotations

import io
import re
from typing import Literal

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect
from pydantic import BaseModel, Field

from tests.stack import Stack, png
from tests.ui.pages import choose, sampler, submit


@pytest.mark.parametrize(("event", "field"), [("drop", "dataTransfer"), ("paste", "clipboardData")])
def test_a_picture_can_be_dropped_or_pasted(page: Page, event: str, field: str) -> None:
    page.locator(".drop").evaluate(
        """async (drop, [event, field]) => {
            const size = { width: 24, height: 16 };
            const canvas = Object.assign(document.createElement("canvas"), size);
            canvas.getContext("2d").fillRect(0, 0, 9, 9);
            const blob = await new Promise((done) => canvas.toBlob(done));
            const carried = new DataTransfer();
            carried.items.add(new File([blob], "carried.png", { type: "image/png" }));
            const Kind = event === "drop" ? DragEvent : ClipboardEvent;
            const init = { bubbles: true, cancelable: true, [field]: carried };
                drop.dispatchEvent(new Kind(event, init));
        }""",
        [event, field],
    )
    expect(page.get_by_text("24 × 16 pixels")).to_be_visible()


def test_the_form_offers_every_operator_with_the_fields_of_its_schema(
    page: Page, stack: Stack
) -> None:
    described = stack.http.get("/v1/capabilities").json()
    assert page.locator(".settings").get_by_role("radio").count() == len(described["operators"])
    for operator in described["operators"]:
        page.locator(f".chip:has([value={operator['type']}])").click()
        for name, field in operator["schema"].get("properties", {}).items():
            if field.get("type") in ("number", "integer") and "enum" not in field:
                control = page.locator(f'[data-pointer="/operator/{name}"]')
                expect(control).to_have_value(str(field["default"]).removesuffix(".0"))
                if "minimum" in field:
                    expect(control).to_have_attribute("min", str(field["minimum"]))


class Haze(BaseModel):
    """An operator unknown to the page."""

    type: Literal["haze"] = "haze"
    density: float = Field(0.5, ge=0, le=1, description="Share of the light that was scattered.")
    layers: int = Field(3, gt=0, lt=9)
    colour: Literal["white", "brown"] = "brown"
    moving: bool = False
    note: str | None = Field(None, max_length=20)
    shift: float


def test_an_unknown_operator_gets_a_form(page: Page) -> None:
    page.evaluate(
        """async (schema) => {
            const { control } = await import("/form.js");
            window.haze = control(schema, {}, "/operator", undefined);
            document.body.replaceChildren(window.haze.element);
        }""",
        Haze.model_json_schema(),
    )
    assert page.evaluate("window.haze.read()") == {
        "density": 0.5,
        "layers": 3,
        "colour": "brown",
        "moving": False,
    }
    expect(page.get_by_label("Density")).to_have_accessible_description(
        "Share of the light that was scattered."
    )
    layers = page.get_by_label("Layers")
    assert [layers.get_attribute(name) for name in ("min", "max", "step")] == ["1", "8", "1"]
    page.get_by_label("Density").fill("0.25")
    page.get_by_label("Colour").select_option("White")
    page.get_by_label("Moving").check()
    page.get_by_label("Note").fill("at dawn")
    page.get_by_label("Shift").fill("-1.5")
    filled = {
        "density": 0.25,
        "layers": 3,
        "colour": "white",
        "moving": True,
        "note": "at dawn",
        "shift": -1.5,
    }
    assert page.evaluate("window.haze.read()") == filled
    assert Haze.model_validate(filled).shift == -1.5


@pytest.mark.parametrize("name", ["Coffee", "Cat", "Rocket", "Astronaut"])
def test_a_sample_fills_in_its_settings(page: Page, stack: Stack, name: str) -> None:
    samples = {
        entry["name"]: entry["spec"]
        for entry in stack.http.get("/samples/index.json").json()
        if entry["task"] == "restore"
    }
    sample = page.get_by_role("button", name=re.compile(f"^{name}"))
    sample.click()
    expect(sample).to_have_attribute("aria-pressed", "true")
    sampler(page, steps=1, inner_steps=1)
    job = stack.job(submit(page))
    wanted = samples[{"Cat": "chelsea"}.get(name, name.lower())]
    assert job["spec"]["operator"].items() >= wanted["operator"].items()
    assert job["spec"]["sigma"] == wanted["sigma"]
    assert job["output_size"] == [128, 128]
    page.get_by_role("button", name="Cancel").click()


def test_irrelevant_fields_are_hidden(page: Page) -> None:
    page.get_by_text("Missing pixels", exact=True).click()
    expect(page.get_by_label("Fraction")).to_be_hidden()
    page.locator('[data-pointer="/operator/mask"]').select_option(label="Random")
    expect(page.get_by_label("Fraction")).to_be_visible()
    expect(page.get_by_label("Top")).to_be_hidden()


def test_several_degradations_are_sent_in_their_order(page: Page, stack: Stack) -> None:
    choose(page, png(32, 32))
    page.get_by_text("Several", exact=True).click()
    page.get_by_role("combobox", name="Degradation").select_option("denoise")
    page.get_by_role("button", name="Add a degradation").click()
    page.get_by_role("combobox", name="Degradation").nth(1).select_option("jpeg")
    page.get_by_label("Quality").fill("30")
    sampler(page, steps=1, inner_steps=1)
    operator = stack.job(submit(page))["spec"]["operator"]
    stages = next(value for value in operator.values() if isinstance(value, list))
    assert stages == [{"type": "denoise"}, {"type": "jpeg", "quality": 30}]


def test_a_mask_file_is_taken_when_the_operator_needs_one(page: Page, stack: Stack) -> None:
    choose(page, png(32, 32))
    expect(page.get_by_role("application")).to_be_hidden()
    page.get_by_text("Missing pixels", exact=True).click()
    choose(page, png(24, 72), "tall.png")
    box = page.get_by_role("application").bounding_box()
    assert box is not None
    assert box == page.get_by_alt_text("Degraded picture, as chosen").bounding_box(), (
        "the mask lies on the picture"
    )
    assert box["height"] / box["width"] == pytest.approx(3, rel=0.02)
    choose(page, png(32, 32))
    known = np.full((32, 32), 255, np.uint8)
    known[8:16, 4:20] = 0
    file = io.BytesIO()
    Image.fromarray(known).save(file, "PNG")
    page.get_by_label("Use a mask file").set_input_files(
        {"name": "wide.png", "mimeType": "image/png", "buffer": png(40, 32, "L")}
    )
    expect(page.get_by_role("alert")).to_contain_text("32 × 32")
    page.get_by_label("Use a mask file").set_input_files(
        {"name": "mask.png", "mimeType": "image/png", "buffer": file.getvalue()}
    )
    expect(page.get_by_text("13 % painted.")).to_be_visible()
    sampler(page, steps=1, inner_steps=1)
    with Image.open(io.BytesIO(stack.artifact(submit(page), "mask.png"))) as sent:
        assert (np.asarray(sent.convert("L")) == known).all()


def test_errors_of_the_service_are_shown(page: Page, complaints: list[str]) -> None:
    alert = page.get_by_role("alert")
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(alert).to_contain_text("Choose a picture first")

    page.get_by_label("Degraded picture", exact=True).set_input_files(
        {"name": "broken.png", "mimeType": "image/png", "buffer": b"no picture at all"}
    )
    expect(alert).to_contain_text("broken.png")

    # browsers display GIF, the service rejects it
    choose(page, png(32, 32, image_format="GIF"), "drawing.gif")
    expect(page.get_by_text("drawing.gif, 32 × 32 pixels")).to_be_visible()
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(alert).to_contain_text("PNG, JPEG, WEBP")
    expect(page.get_by_role("button", name="Restore", exact=True)).to_be_enabled()
    assert [text for text in complaints if "422" in text]
    complaints.clear()


def test_a_value_out_of_range_is_marked_at_its_field(page: Page) -> None:
    choose(page, png(32, 32))
    page.get_by_label("Noise level", exact=True).fill("3")
    page.get_by_role("button", name="Restore", exact=True).click()
    noise = page.get_by_label("Noise level", exact=True)
    expect(noise).to_have_attribute("aria-invalid", "true")
    expect(noise).to_be_focused()
    noise.fill("0.1")
    expect(noise).to_have_attribute("aria-invalid", "false")
