"""Jobs in the studio: steps and tokens, zoom, reload, cancel, lost connections, code, history."""

from __future__ import annotations

import io
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.stack import Stack, png
from tests.ui.pages import SLOW, choose, colours, comparison, ended, sampler, scrub, submit, task

QUICK = {"sampler": {"steps": 6, "inner_steps": 2}}


@pytest.fixture(scope="module")
def done(running_stack: Stack) -> dict[str, Any]:
    """A finished job with two samples and 8x6 tokens, which extend beyond the picture."""
    job = running_stack.submit(png(64, 44), num_samples=2, **QUICK)
    return running_stack.wait(job["id"])


def test_a_picture_in_tiles_shows_which_tiles_are_done(page: Page, stack: Stack) -> None:
    job = stack.submit(png(150, 70), tile=80, sampler={"steps": 1, "inner_steps": 1})
    stack.wait(job["id"])
    page.goto(f"/#{job['id']}")
    expect(scrub(page)).to_have_attribute("max", "3")
    page.get_by_label("Tokens").select_option("Decided so far")
    scrub(page).fill("2")
    canvas = page.locator("canvas[style*='--columns: 3']")
    expect(canvas).to_have_css("--rows", "1")
    assert canvas.evaluate("canvas => canvas.style.width") == "100%"


def test_the_tokens_show_which_step_decided_them(
    page: Page, stack: Stack, done: dict[str, Any]
) -> None:
    steps = [data for _, kind, data in stack.events(done["id"]) if kind == "progress"]
    page.goto(f"/#{done['id']}")
    expect(scrub(page)).to_have_attribute("max", "6")
    page.get_by_label("Tokens").select_option("Decided so far")
    scrub(page).fill("3")
    expect(page.get_by_role("img", name="Current estimate of the picture")).to_have_attribute(
        "src", re.compile("previews/3$")
    )
    expect(scrub(page)).to_have_attribute(
        "aria-valuetext", re.compile(rf"Step 3 of 6, {len(steps[2]['anchors'])} token")
    )
    fresh = [index for index, colour in enumerate(colours(page)) if colour[1] > 200]
    assert fresh == sorted(steps[2]["anchors"])
    still_open = {
        index for index, colour in enumerate(colours(page)) if colour[3] and colour[1] < 50
    }
    assert still_open == {token for step in steps[3:] for token in step["anchors"]}

    page.get_by_label("Tokens").select_option("Heat by step")
    scrub(page).fill("6")
    by_colour = {tuple(colours(page)[step["anchors"][0]]) for step in steps}
    assert len(by_colour) == 6, "a colour a step"
    page.get_by_label("Tokens").select_option("Heat by confidence")
    scored = sorted(
        (score, token)
        for step in steps
        for token, score in zip(step["anchors"], step["confidence"], strict=True)
    )
    light = [
        sum(colours(page)[token][:2])
        for _, token in (scored[0], scored[len(scored) // 2], scored[-1])
    ]
    assert light == sorted(light), "the surer, the lighter"
    assert light[0] < light[1] < light[2]
    columns, rows = steps[0]["grid"][1], steps[0]["grid"][0]
    picture, canvas = (
        page.locator("img.after").bounding_box(),
        page.locator(".tokens").bounding_box(),
    )
    assert picture is not None
    assert canvas is not None
    assert canvas["width"] / picture["width"] == pytest.approx(
        columns * 4 / 64, rel=0.01
    ) or canvas["width"] / picture["width"] == pytest.approx(columns * 8 / 64, rel=0.01)
    assert canvas["height"] / canvas["width"] == pytest.approx(rows / columns, rel=0.01), (
        "tokens are square"
    )


def test_the_steps_are_played(page: Page, done: dict[str, Any]) -> None:
    page.goto(f"/#{done['id']}")
    expect(scrub(page)).to_have_value("6")
    page.get_by_label("Tokens").select_option("Heat by step")
    page.get_by_role("button", name="Play the steps").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_role("button", name="Play the steps")).to_be_visible(timeout=10_000)
    expect(scrub(page)).to_have_value("6")
    expect(page.get_by_role("img", name="The result")).to_be_visible()


def test_both_pictures_zoom_and_pan_together(page: Page, done: dict[str, Any]) -> None:
    page.goto(f"/#{done['id']}")
    ended(page, "Restored")
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Zoom in").click()
    before, after = (page.locator(f"img.{name}") for name in ("before", "after"))
    stage = page.locator(".stage").bounding_box()
    assert stage is not None
    assert before.bounding_box() == after.bounding_box()
    first = after.bounding_box()
    assert first is not None
    assert first["width"] == pytest.approx(2.25 * stage["width"], rel=0.01)
    page.mouse.move(stage["x"] + 30, stage["y"] + 30)
    page.mouse.down()
    page.mouse.move(stage["x"] + 70, stage["y"] + 50, steps=4)
    page.mouse.up()
    moved = after.bounding_box()
    assert moved is not None
    assert (moved["x"] - first["x"], moved["y"] - first["y"]) == (
        pytest.approx(40, abs=1),
        pytest.approx(20, abs=1),
    )
    assert before.bounding_box() == moved
    expect(comparison(page)).to_have_value("50")
    page.locator(".stage").focus()
    page.keyboard.press("0")
    expect(page.get_by_text("100 %", exact=True)).to_be_visible()


def test_samples_mean_and_spread_can_be_looked_at(page: Page, done: dict[str, Any]) -> None:
    page.goto(f"/#{done['id']}")
    for name, file in (("Sample 2", "sample-2"), ("Mean", "mean"), ("Spread", "spread")):
        page.get_by_role("button", name=name).click()
        expect(page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
        expect(page.locator("img.after")).to_have_attribute("src", re.compile(rf"{file}\.png$"))
        expect(page.get_by_role("link", name="Download PNG")).to_have_attribute(
            "href", re.compile(rf"{file}\.png$")
        )


def test_a_contact_strip_shows_the_steps(page: Page, done: dict[str, Any]) -> None:
    page.goto(f"/#{done['id']}")
    ended(page, "Restored")
    expect(scrub(page)).to_have_value("6")
    with page.expect_download() as download:
        page.get_by_role("button", name="Contact strip").click()
    assert download.value.suggested_filename == f"{done['id']}-contact.png"
    with Image.open(download.value.path()) as picture:
        strip = np.asarray(picture.convert("RGB"))
    tile, gap = (256, 176), 16
    assert strip.shape[1] == gap + 6 * (tile[0] + gap), "what was sent, four steps, the result"
    tiles = [
        strip[gap : gap + tile[1], gap + at * (tile[0] + gap) :][:, : tile[0]] for at in range(6)
    ]
    with Image.open(io.BytesIO(png(64, 44))) as sent:
        assert (
            np.abs(
                np.asarray(sent.resize(tile, Image.Resampling.NEAREST)).astype(int) - tiles[0]
            ).mean()
            < 8
        )
    assert all(np.abs(one.astype(int) - other).mean() > 0.1 for one, other in pairwise(tiles))
    assert (strip[gap + tile[1] + 4 :] < 128).any(), "words beneath"


def test_the_copied_curl_command_submits_the_same_job(
    page: Page, stack: Stack, done: dict[str, Any], tmp_path: Path
) -> None:
    page.goto(f"/#{done['id']}")
    page.get_by_text("Use it in code").click()
    command = page.locator(".code pre").inner_text()
    (tmp_path / "image.png").write_bytes(png(64, 44))
    answer = json.loads(
        subprocess.run(
            ["bash", "-c", command.replace("wait=60", "wait=0")],
            cwd=tmp_path,
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
    )
    assert answer["spec"] == done["spec"]
    stack.http.post(answer["urls"]["cancel"])
    page.get_by_text("Python", exact=True).click()
    text = page.locator(".code pre").inner_text()
    compile(text, "snippet", "exec")
    assert '"num_samples"' not in text
    assert "num_samples=2" in text
    page.get_by_text("Command line", exact=True).click()
    assert "aps restore image.png" in page.locator(".code pre").inner_text()


def test_a_reload_resumes_a_running_job_and_cancel_ends_it(page: Page, stack: Stack) -> None:
    choose(page, png(64, 64))
    page.get_by_text("Noise only", exact=True).click()
    sampler(page, steps=60, inner_steps=20)
    job_id = submit(page)
    running = page.locator(".running").get_by_text(re.compile(r"Step \d+ of 60"))
    expect(running).to_be_visible(timeout=SLOW)
    page.reload()
    expect(running).to_be_visible(timeout=SLOW)
    expect(page.get_by_role("img", name="Current estimate of the picture")).to_be_visible(
        timeout=SLOW
    )
    page.get_by_role("button", name="Cancel").click()
    ended(page, "Canceled")
    assert stack.job(job_id)["state"] == "canceled"


def test_the_picture_is_refined_within_a_long_step(page: Page, stack: Stack) -> None:
    long = {"type": "aps", "steps": 2, "inner_steps": 5000, "inner": "fixed"}
    job = stack.submit(png(96, 64), sampler=long)
    page.goto(f"/#{job['id']}")
    expect(page.get_by_text("Estimate within step 1")).to_be_visible(timeout=SLOW)
    picture = page.get_by_role("img", name="Current estimate of the picture")
    first = picture.get_attribute("src")
    assert first is not None
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 96
    expect(picture).not_to_have_attribute("src", first)
    page.get_by_role("button", name="Cancel").click()
    ended(page, "Canceled")


def test_a_queued_job_shows_its_position_and_a_lost_connection_recovers(
    page: Page, stack: Stack, complaints: list[str]
) -> None:
    first = stack.submit(png(), sampler={"steps": 60, "inner_steps": 20})
    second = stack.submit(png(32, 32), sampler={"steps": 4, "inner_steps": 1})
    page.goto(f"/#{second['id']}")
    expect(page.get_by_text(re.compile("Next in line|ahead"))).to_be_visible()
    expect(page.get_by_text(re.compile("Estimated computing time"))).to_be_visible()
    page.context.set_offline(True)
    expect(page.get_by_text("Connection lost")).to_be_visible(timeout=20_000)
    stack.http.post(first["urls"]["cancel"])
    page.context.set_offline(False)
    ended(page, "Restored")
    expect(page.get_by_role("img", name=re.compile("Data misfit after step 4"))).to_be_visible()
    assert all("ERR_INTERNET_DISCONNECTED" in text for text in complaints)
    complaints.clear()


def test_an_unknown_job_leads_back_to_the_form(page: Page, complaints: list[str]) -> None:
    page.goto("/#no-such-job")
    expect(page.get_by_role("alert")).to_contain_text("no-such-job")
    expect(page.get_by_role("heading", name="Restore a picture")).to_be_visible()
    complaints.clear()


def test_the_history_is_filtered_opened_and_deleted(
    page: Page, stack: Stack, done: dict[str, Any]
) -> None:
    made = stack.http.post(
        "/v1/generate",
        json={
            "prompt": "a very particular flower",
            "width": 32,
            "height": 32,
            "sampler": {"steps": 1},
        },
    ).json()
    stack.wait(made["id"])
    page.get_by_role("link", name="History").click()
    cards = page.get_by_role("listitem")
    flower = page.get_by_role("link", name="a very particular flower")
    expect(flower).to_be_visible()
    assert (
        page.locator("img.thumb").first.evaluate(
            "async image => { await image.decode(); return image.naturalWidth; }"
        )
        > 0
    )
    page.get_by_label("Task", exact=True).select_option("Restore")
    expect(flower).to_be_hidden()
    expect(cards.first).to_be_visible()
    page.get_by_label("Task", exact=True).select_option("All")
    page.get_by_label("Prompt or id").fill("particular")
    expect(cards).to_have_count(1)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete permanently?").click()
    expect(page.get_by_text("No job matches.")).to_be_visible()
    assert stack.http.get(f"/v1/jobs/{made['id']}").status_code == 404
    page.get_by_label("Prompt or id").fill(done["id"])
    page.get_by_role("link", name="Noise only").click()
    ended(page, "Restored")
    task(page, "Edit")
    page.go_back()
    ended(page, "Restored")
