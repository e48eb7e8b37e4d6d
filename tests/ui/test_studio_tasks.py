"""All tasks in the studio: input, progress, result, download."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page, expect

from tests.stack import Stack, png
from tests.ui.pages import (
    SLOW,
    choose,
    colours,
    comparison,
    downloaded,
    ended,
    sampler,
    scrub,
    submit,
    task,
)


def size_of(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "PNG"
        return image.size


def test_a_picture_is_restored_compared_and_downloaded(page: Page, stack: Stack) -> None:
    choose(page, png(32, 32))
    page.get_by_text("Low resolution", exact=True).click()
    page.get_by_label("Factor").select_option("2")
    page.get_by_label("Noise level", exact=True).fill("0.1")
    page.get_by_text("More settings").click()
    page.get_by_label("Seed of the result").fill("7")
    sampler(page, steps=5, inner_steps=3)
    job_id = submit(page)

    preview = page.get_by_role("img", name="Current estimate of the picture")
    expect(preview).to_be_visible(timeout=SLOW)
    expect(preview).to_have_attribute("src", re.compile(rf"{job_id}/previews/\d+$"))
    ended(page, "Restored")
    expect(page.get_by_role("img", name=re.compile("Data misfit after step 5"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Inner loop, step 5"))).to_be_visible()
    spec = stack.job(job_id)["spec"]
    assert spec["operator"] == {"type": "super_resolution", "factor": 2}
    assert (
        spec["sigma"],
        spec["seed"],
        spec["sampler"]["steps"],
        spec["sampler"]["inner_steps"],
    ) == (0.1, 7, 5, 3)

    after = page.get_by_role("img", name="The result")
    assert after.evaluate("image => image.complete && image.naturalWidth") == 64
    comparison(page).focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(comparison(page)).to_have_attribute("aria-valuetext", "47 % of the result")
    assert "53%" in page.locator(".cut").evaluate("cut => getComputedStyle(cut).clipPath")
    assert downloaded(page, "Download PNG") == stack.artifact(job_id, "result.png")
    assert json.loads(downloaded(page, "Settings as JSON"))["spec"]["seed"] == 7
    expect(page.get_by_text("not evidence").locator("visible=true")).to_be_visible()

    page.get_by_role("button", name="Edit and run again").click()
    expect(page.get_by_text("measurement.png, 32 × 32 pixels")).to_be_visible()
    expect(page.get_by_label("Seed of the result")).to_have_value("7")
    expect(page.get_by_label("Factor")).to_have_value("0")
    expect(page.locator('[data-pointer="/sampler/steps"]')).to_have_value("5")


def test_a_picture_is_stylized(page: Page, stack: Stack) -> None:
    task(page, "Stylize")
    page.get_by_role("button", name="Stylize", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("style picture")
    page.get_by_role("button", name="Embers").click()
    expect(page.get_by_text("style-ember.png, 128 × 128 pixels")).to_be_visible()
    choose(page, png(32, 24), "lake.png", "Content picture")
    page.get_by_label("Prompt").fill("a lake")
    sampler(page, steps=2, inner_steps=2)
    job_id = submit(page, "Stylize")
    ended(page, "Stylized")
    job = stack.job(job_id)
    assert job["spec"]["prompt"] == "a lake"
    assert {"measurement.png", "style.png"} <= {artifact["name"] for artifact in job["artifacts"]}
    assert size_of(downloaded(page, "Download PNG")) == (32, 24)
    expect(page.get_by_role("img", name=re.compile("^Style distance after step 2"))).to_be_visible()


def test_the_painted_area_is_regenerated(page: Page, stack: Stack) -> None:
    task(page, "Edit")
    choose(page, png(64, 64), slot="Picture")
    canvas = page.get_by_role("application")
    box = canvas.bounding_box()
    assert box is not None

    def drag(*points: tuple[float, float]) -> None:
        for index, (x, y) in enumerate(points):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=3)
            if index == 0:
                page.mouse.down()
        page.mouse.up()

    page.get_by_text("Box", exact=True).click()
    drag((0.5, 0), (0.999, 0.999))
    expect(page.get_by_text("50 % painted.")).to_be_visible()
    page.get_by_text("Brush", exact=True).click()
    page.get_by_label("Brush size").fill("20")
    drag((0.2, 0.2), (0.3, 0.2))
    expect(page.get_by_text("50 % painted.")).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("50 % painted.")).to_be_visible()
    page.get_by_text("Eraser", exact=True).click()
    drag((0.75, 0), (0.75, 0.999))
    page.get_by_label("Prompt").fill("waves")
    sampler(page, steps=2, inner_steps=2)
    job_id = submit(page, "Edit")

    with Image.open(io.BytesIO(stack.artifact(job_id, "mask.png"))) as picture:
        assert picture.getchannel("A").tobytes() == picture.convert("L").tobytes(), (
            "read by alpha or by brightness, it is the same"
        )
        mask = np.asarray(picture.convert("L"))
    assert mask.shape == (64, 64)
    assert set(np.unique(mask)) == {0, 255}
    assert (mask[:, :31] == 255).all(), "white stays"
    assert (mask[:, 33:40] == 0).all(), "black is drawn anew"
    assert (mask[:, 47:49] == 255).all(), "erased"

    ended(page, "Edited")
    with (
        Image.open(io.BytesIO(downloaded(page, "Download PNG"))) as picture,
        Image.open(io.BytesIO(png(64, 64))) as sent,
    ):
        kept = np.asarray(mask) == 255
        assert (np.asarray(picture)[kept] == np.asarray(sent)[kept]).all()
    page.get_by_label("Tokens").select_option("Decided so far")
    expect(page.get_by_text("White: kept from the original picture.")).to_be_visible()
    first = next(data for _, kind, data in stack.events(job_id) if kind == "progress")
    white = [index for index, (red, _, _, alpha) in enumerate(colours(page)) if red > 200 and alpha]
    assert white == first["known"]
    assert white
    page.get_by_role("button", name="Edit and run again").click()
    expect(page.get_by_text(f"{100 * (mask == 0).mean():.0f} % painted.")).to_be_visible()


def test_an_answer_is_written_with_boxes_and_one_without_guidance_beside_it(
    page: Page, stack: Stack
) -> None:
    task(page, "Guide text")
    page.get_by_role("button", name="What is a lantern?").click()
    expect(page.get_by_label("Prompt")).to_have_value("What is a lantern?")
    expect(page.get_by_role("checkbox", name="Also answer without guidance")).to_be_checked()
    sampler(page, max_new_tokens=8, steps=8, inner_steps=2)
    job_id = submit(page, "Answer")
    expect(page.locator(".answer .open").first).to_be_visible(timeout=SLOW)
    ended(page, "Answered")
    guided, unguided = (
        page.get_by_role("article", name="Guided"),
        page.get_by_role("article", name="Without guidance"),
    )
    expect(guided).to_contain_text(re.compile(r"Reward -?\d"))
    for card, name in ((guided, "answer.txt"), (unguided, "unguided.txt")):
        expect(card.locator(".answer")).to_have_text(stack.artifact(job_id, name).decode())
    expect(page.get_by_role("img", name=re.compile("^Reward after step"))).to_be_visible()
    assert downloaded(page, "Download text") == stack.artifact(job_id, "answer.txt")
    scrub(page).fill("3")
    expect(guided.locator(".open").first).to_be_visible()
    expect(unguided).to_contain_text("with the same seed")
    scrub(page).fill("16")
    expect(guided.locator(".answer")).to_have_text(stack.artifact(job_id, "answer.txt").decode())


def test_several_answers_are_written_side_by_side(page: Page, stack: Stack) -> None:
    task(page, "Guide text")
    page.get_by_label("Prompt").fill("Write a story about a dog.")
    page.get_by_role("checkbox", name="Also answer without guidance").uncheck()
    page.get_by_text("More settings").click()
    page.get_by_label("Number of samples").fill("3")
    sampler(page, max_new_tokens=8, steps=4, inner_steps=2)
    job_id = submit(page, "Answer")
    ended(page, "Answered")
    result = json.loads(stack.artifact(job_id, "result.json"))
    rewards = [answer["reward"] for answer in result["answers"]]
    for number, answer in enumerate(result["answers"], start=1):
        card = page.get_by_role("article", name=f"Guided, answer {number}")
        expect(card.locator(".answer")).to_have_text(answer["text"])
        best = number - 1 == rewards.index(max(rewards))
        word = "Best reward" if best else "Reward"
        expect(card).to_contain_text(f"{word} {answer['reward']:.3f}")
    expect(page.locator(".answer-card.best")).to_have_count(1)
    scrub(page).fill("1")
    expect(page.locator(".answer .open").first).to_be_visible()


def test_the_order_of_the_tokens_is_shown_for_the_answers_of_several_prompts(
    page: Page, stack: Stack
) -> None:
    task(page, "Guide text")
    page.get_by_label("Prompt", exact=True).fill("What is a lantern?")
    page.get_by_role("checkbox", name="Also answer without guidance").uncheck()
    page.get_by_text("More settings").click()
    page.get_by_role("button", name="Add a prompt").click()
    page.get_by_role("listitem", name="Prompt 2").get_by_role("textbox").fill("What is oak?")
    sampler(page, max_new_tokens=8, steps=4, inner_steps=2)
    job_id = submit(page, "Answer")
    ended(page, "Answered")
    assert stack.job(job_id)["spec"]["more_prompts"] == ["What is oak?"]
    result = json.loads(stack.artifact(job_id, "result.json"))
    rows = [data["rows"] for _, kind, data in stack.events(job_id) if kind == "progress"]
    page.get_by_label("Tokens").select_option("Order in which they were decided")
    for number, best in enumerate(result["best_answers"], start=1):
        card = page.get_by_role("article", name=f"Guided, prompt {number}")
        tokens = card.locator(".token")
        expect(tokens).to_have_count(8)
        for step, seen in enumerate(rows, start=1):
            for place in seen[number - 1]["decided"]:
                expect(tokens.nth(place)).to_have_attribute("title", f"Decided in step {step}")
        shown = "".join(tokens.all_text_contents())
        assert shown.strip().startswith(best["text"])
    first = {k: len(row["decided"]) for k, row in enumerate(rows[0])}
    scrub(page).fill("1")
    expect(page.locator(".token")).to_have_count(sum(first.values()))
    scrub(page).fill("4")
    page.get_by_label("Tokens").select_option("As text")
    for number, best in enumerate(result["best_answers"], start=1):
        card = page.get_by_role("article", name=f"Guided, prompt {number}")
        expect(card.locator(".answer")).to_have_text(best["text"])


def test_a_picture_is_generated_from_a_prompt(page: Page, stack: Stack) -> None:
    task(page, "Generate")
    page.get_by_role("button", name="A red flower").click()
    page.get_by_text("More settings").click()
    page.get_by_label("Width").fill("48")
    page.get_by_label("Height").fill("32")
    page.get_by_label("Number of samples").fill("2")
    sampler(page, steps=3)
    job_id = submit(page, "Generate")
    ended(page, "Generated")
    assert size_of(downloaded(page, "Download PNG")) == (48, 32)
    expect(comparison(page)).to_have_count(0)
    assert stack.job(job_id)["spec"]["prompt"] == "a red flower"
    page.get_by_role("button", name="Sample 2").click()
    expect(page.get_by_role("link", name="Download PNG")).to_have_attribute(
        "href", re.compile("sample-2")
    )


UNKNOWN: dict[str, Any] = {
    "type": "colour_grade",
    "summary": "Grade a picture after another one.",
    "pictures": {"image": True, "lut": False},
    "schema": {
        "properties": {
            "type": {"const": "colour_grade", "default": "colour_grade", "type": "string"},
            "prior": {"default": "embedded", "type": "string"},
            "strength": {
                "default": 0.5,
                "minimum": 0,
                "maximum": 1,
                "type": "number",
                "description": "How much.",
            },
        },
        "required": ["strength"],
        "$defs": {},
    },
}


def test_an_unknown_task_gets_a_form(page: Page, complaints: list[str]) -> None:
    def with_another(route: Any) -> None:
        answer = route.fetch()
        described = answer.json()
        described["tasks"].append(UNKNOWN)
        route.fulfill(response=answer, json=described)

    page.route("**/v1/capabilities", with_another)
    page.reload()
    task(page, "Colour grade")
    expect(page.get_by_text("Grade a picture after another one.")).to_be_visible()
    expect(page.get_by_label("Lut", exact=True)).to_be_attached()
    expect(page.get_by_label("Strength")).to_have_value("0.5")
    sent: list[bytes] = []

    def refuse(route: Any) -> None:
        sent.append(route.request.post_data_buffer)
        route.fulfill(status=200, json={"id": "00000000-0000-0000-0000-000000000000"})

    page.route("**/v1/colour_grade", refuse)
    page.route("**/v1/jobs/**", lambda route: route.abort())
    page.get_by_label("Picture", exact=True).set_input_files(
        {"name": "a.png", "mimeType": "image/png", "buffer": png()}
    )
    expect(page.get_by_text("a.png, 64 × 64 pixels")).to_be_visible()
    page.get_by_role("button", name="Colour grade", exact=True).click()
    page.wait_for_timeout(300)
    assert b'{"prior":"embedded","strength":0.5}' in sent[0]
    assert b'name="image"' in sent[0]
    complaints.clear()  # the mocked job does not exist


def test_any_sampler_can_be_chosen(page: Page, stack: Stack) -> None:
    choose(page, png(32, 32))
    page.get_by_text("Noise only", exact=True).click()
    page.get_by_text("Sampler", exact=True).click()
    page.get_by_label("Sampler type").select_option("G2D2")
    page.locator('[data-pointer="/sampler/steps"]:visible').fill("2")
    page.locator('[data-pointer="/sampler/inner_steps"]:visible').fill("2")
    job_id = submit(page)
    ended(page, "Restored")
    spec = stack.job(job_id)["spec"]["sampler"]
    assert (spec["type"], spec["steps"], spec["inner_steps"]) == ("g2d2", 2, 2)
    page.get_by_text("Use it in code").click()
    page.get_by_text("Command line", exact=True).click()
    expect(page.locator("pre code")).to_contain_text("--sampler 'g2d2'")
