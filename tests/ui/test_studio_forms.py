"""The studio's forms: generation from schemas, samples, error messages."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, Route, expect
from pydantic import BaseModel, Field

from aps_core.operators import OperatorSpec
from aps_core.priors.embedded.image import EmbeddedPrior
from aps_core.runtime.durations import in_words
from aps_core.samplers import SamplerSpec
from tests.stack import Stack, png
from tests.ui.pages import choose, sampler, submit, task

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("event", "field"), [("drop", "dataTransfer"), ("paste", "clipboardData")])
def test_a_picture_can_be_dropped_or_pasted(page: Page, event: str, field: str) -> None:
    page.locator(".slot:not([hidden]) .drop").evaluate(
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
    operators = page.get_by_role("group", name="How was it degraded?").get_by_role("radio")
    assert operators.count() == len(described["operators"])
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
    stage = page.get_by_role("combobox", name="Degradation")
    offered = stage.evaluate("select => [...select.options].map((option) => option.value)")
    alone = {name for name in OperatorSpec.family if OperatorSpec.named(name).alone}
    assert alone >= {"auto", "blind_blur", "compose"}
    assert set(offered) == set(OperatorSpec.family) - alone
    stage.select_option("denoise")
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


def test_a_mask_that_is_missing_is_asked_for_before_anything_is_sent(
    page: Page, stack: Stack
) -> None:
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    choose(page, png())
    page.get_by_text("Missing pixels", exact=True).click()
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text(
        re.compile("^Paint over the missing parts first")
    )
    assert f"{stack.url}/v1/restore" not in sent
    # what is transparent is missing, so nothing needs to be painted
    picture = Image.new("RGBA", (32, 32), "red")
    picture.putpixel((3, 4), (0, 0, 0, 0))
    out = io.BytesIO()
    picture.save(out, "PNG")
    choose(page, out.getvalue())
    sampler(page, steps=1, inner_steps=1)
    submit(page)
    assert f"{stack.url}/v1/restore" in sent


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


def test_the_result_is_announced_before_it_is_computed(page: Page, stack: Stack) -> None:
    choose(page, png(500, 340))
    page.get_by_text("Noise only", exact=True).click()
    line = page.locator(".forecast-line")
    expect(line).to_have_text(re.compile("^Result 256 × 174 pixels, about"))
    expect(page.get_by_text("detail smaller than 2 pixels is lost")).to_be_visible()
    # the service chooses the prior
    spec = {"operator": {"type": "denoise"}, "working_size": 256}
    asked = {"spec": spec, "image_size": [500, 340]}
    found = stack.http.post("/v1/restore/estimate", json=asked).json()
    for name, label in (("fast", "Fast"), ("balanced", "Balanced"), ("best", "Best")):
        seconds = in_words(found["seconds_by_preset"][name])
        expect(page.get_by_role("radio", name=f"{label} about {seconds}")).to_be_attached()
        page.locator(f".chip:has([value={name}])").click()
        expect(line).to_have_text(f"Result 256 × 174 pixels, about {seconds}.")
    page.get_by_role("button", name="Keep full size").click()
    expect(line).to_have_text(re.compile("^Result 500 × 340 pixels"))
    expect(page.get_by_role("button", name="Crop instead")).to_be_hidden()


def test_the_service_chooses_the_prior_unless_one_is_chosen(
    page: Page, complaints: list[str]
) -> None:
    choose(page, (EXAMPLES / "photos/coffee.png").read_bytes(), "coffee.png")
    expect(page.get_by_text("Nothing seems to be wrong with this picture.")).to_be_visible()
    page.get_by_text("Noise only", exact=True).click()
    page.get_by_text("More settings").click()
    prior = page.get_by_label("Prior", exact=True)
    expect(prior).to_contain_text("By what the picture shows")
    page.route("**/v1/restore", lambda route: route.abort())

    def sent() -> bytes:
        with page.expect_request("**/v1/restore") as request:
            page.get_by_role("button", name="Restore", exact=True).click()
        return request.value.post_data_buffer or b""

    assert b'"prior"' not in sent()
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("a cup")  # which only the default prior reads
    expect(prior).to_contain_text("Default (Any picture, with prompts)")
    prompt.fill("")
    expect(prior).to_contain_text("By what the picture shows")
    prior.select_option("Photographs")
    expect(page.get_by_role("alert")).to_be_visible()
    assert b'"prior":"embedded_photographs"' in sent()
    page.wait_for_timeout(500)
    complaints.clear()  # of the requests cut off here


def test_a_size_that_is_refused_is_explained_before_submission(page: Page) -> None:
    choose(page, png(900, 700))
    page.get_by_text("Noise only", exact=True).click()
    page.get_by_text("More settings").click()
    page.get_by_label("Longest side of the result").fill("900")
    refused = page.locator(".forecast-line.refused")
    expect(refused).to_have_text("The picture is too large for this device.")
    expect(page.get_by_text("this device allows")).to_be_visible()
    tiles = page.get_by_role("button", name="Keep full size, in tiles (about")
    tiles.click()
    expect(refused).to_be_hidden()
    expect(page.locator(".forecast-line")).to_have_text(re.compile("^Result 900 × 700 pixels"))


def test_the_refusal_of_a_text_offers_no_picture_s_way_out(page: Page) -> None:
    asked: list[dict[str, Any]] = []
    refusal = {"code": "job_too_long", "title": "The job would take too long", "detail": "An hour."}
    predicted = {"output_size": None, "reduced_size": None, "seconds": 3600, "tokens": 80}

    def refuse(route: Route) -> None:
        asked.append(route.request.post_data_json["spec"])
        route.fulfill(json={**predicted, "refusal": refusal, "seconds_by_preset": {}})

    page.route("**/v1/guide/estimate", refuse)
    task(page, "Guide text")
    expect(page.locator(".forecast-line.refused")).to_have_text("The job would take too long.")
    expect(page.get_by_text("An hour.")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert not [spec for spec in asked if "working_size" in spec]


def test_a_picture_that_is_too_large_is_offered_in_tiles(page: Page) -> None:
    choose(page, png(600, 600))
    page.get_by_text("Noise only", exact=True).click()
    page.locator(".chip:has([value=fast])").click()
    page.get_by_role("button", name="Keep full size, in tiles (about").click()
    expect(page.locator(".forecast-line")).to_have_text(re.compile("^Result 600 × 600 pixels"))
    page.get_by_text("More settings").click()
    expect(page.get_by_label("Tile size, for large pictures")).to_have_value("256")


def test_a_part_is_cropped_instead_of_reducing_the_picture(page: Page, stack: Stack) -> None:
    sent = Image.open(io.BytesIO(png(500, 340)))
    choose(page, png(500, 340))
    page.get_by_text("Noise only", exact=True).click()
    page.get_by_role("button", name="Crop instead").click()
    expect(page.get_by_text("256 × 256 pixels, used as they are")).to_be_visible()
    for key in ("ArrowLeft", "ArrowUp", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    expect(page.get_by_text("246 × 256 pixels, used as they are")).to_be_visible()
    page.get_by_role("button", name="Use this part").click()
    expect(page.get_by_text("Part of photo.png, 246 × 256 pixels")).to_be_visible()
    expect(page.locator(".forecast-line")).to_have_text(re.compile("^Result 246 × 256 pixels"))
    sampler(page, steps=1, inner_steps=1)
    job_id = submit(page)
    with Image.open(io.BytesIO(stack.artifact(job_id, "measurement.png"))) as used:
        wanted = np.asarray(sent.crop((112, 32, 112 + 246, 32 + 256)))
        assert np.array_equal(np.asarray(used.convert("RGB")), wanted)
    with Image.open(io.BytesIO(stack.artifact(job_id, "whole.png"))) as whole:
        assert whole.size == sent.size, "what happened to the part is read from the whole picture"
    page.go_back()
    page.get_by_role("button", name="Whole picture").click()
    expect(page.get_by_text("photo.png, 500 × 340 pixels")).to_be_visible()


def test_an_unsent_form_survives_a_reload_and_a_stray_drop(page: Page) -> None:
    page.get_by_role("heading", name="Restore a picture").evaluate(
        """async (heading) => {
            const canvas = new OffscreenCanvas(24, 16);
            canvas.getContext("2d").fillRect(0, 0, 9, 9);
            const blob = await canvas.convertToBlob();
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([blob], "stray.png", { type: "image/png" }));
            const drop = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer });
            if (heading.dispatchEvent(drop)) throw new Error("the browser would open the file");
        }"""
    )
    expect(page.get_by_text("stray.png, 24 × 16 pixels")).to_be_visible()
    page.get_by_text("Gaussian blur", exact=True).click()
    page.get_by_label("Blur width").fill("1.25")
    page.locator(".chip:has([value=best])").click()
    page.wait_for_timeout(1500)  # forms are kept 0.4 s after the last change
    page.reload()
    expect(page.get_by_text("stray.png, 24 × 16 pixels")).to_be_visible()
    expect(page.get_by_label("Blur width")).to_have_value("1.25")
    expect(page.get_by_role("radio", name="Best")).to_be_checked()
    page.get_by_text("Sampler", exact=True).click()
    placeholder = page.get_by_label("reverse steps").get_attribute("placeholder")
    usual = SamplerSpec.named(EmbeddedPrior.restoring_sampler)
    assert placeholder == str(EmbeddedPrior.recommended_for(usual, preset="best")["steps"])
    assert page.get_by_label("Sampler type").input_value() == EmbeddedPrior.restoring_sampler


def test_durations_have_the_same_words_as_in_the_library(page: Page) -> None:
    seconds = [0.2, 1, 1.5, 45, 89.5, 90, 150, 5399, 5400, 9000, 36_000, 129_599, 133_931, 1e6]
    words = page.evaluate(
        "async (all) => all.map((await import('/strings.js')).duration)",
        seconds,
    )
    assert words == [in_words(each) for each in seconds]
