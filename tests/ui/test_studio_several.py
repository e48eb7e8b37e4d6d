"""Several pictures at once in the studio: files, ZIP files; one job each, one download."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import pytest
from PIL import Image, ImageFilter
from playwright.sync_api import FilePayload, Page, Route, expect

from tests.stack import Stack
from tests.ui.pages import SLOW, findings, sampler
from tests.ui.widths import too_wide

PHOTO = Path(__file__).parents[2] / "examples/photos/chelsea.png"


def picture(blur: float) -> bytes:
    image = Image.open(PHOTO).convert("RGB").crop((90, 90, 154, 154))
    buffer = io.BytesIO()
    image.filter(ImageFilter.GaussianBlur(blur)).save(buffer, "PNG")
    return buffer.getvalue()


def png(name: str, data: bytes) -> FilePayload:
    return {"name": name, "mimeType": "image/png", "buffer": data}


def archive(files: dict[str, bytes]) -> FilePayload:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return {"name": "holiday.zip", "mimeType": "application/zip", "buffer": buffer.getvalue()}


def give(page: Page, *files: FilePayload) -> None:
    page.get_by_label("Degraded picture", exact=True).set_input_files(list(files))


def shows(page: Page, name: str) -> None:
    """Checks accessibility and layout."""
    assert findings(page) == []
    assert too_wide(page, name) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_several_files_are_restored_and_downloaded_at_once(
    page: Page, stack: Stack, width: int, complaints: list[str]
) -> None:
    page.set_viewport_size({"width": width, "height": 850})
    give(
        page,
        png("soft.png", picture(2)),
        png("fine.png", picture(0)),
        png("broken.png", b"no picture"),
    )
    panel = page.get_by_role("region", name="Several pictures")
    expect(panel.get_by_role("heading", name="3 pictures")).to_be_focused()
    expect(page.locator("[value=auto]")).to_be_checked()
    page.locator(".chip:has([value=fast])").click()
    sampler(page, steps=1, inner_steps=1)
    shows(page, "several-chosen")
    panel.get_by_role("button", name="Restore 3 pictures").click()
    expect(page.get_by_role("heading", name="2 pictures", level=1)).to_be_visible(timeout=SLOW)
    expect(page.get_by_text(re.compile("broken.png: .*not a picture"))).to_be_visible()
    expect(page.get_by_text("2 of 2 finished, 1 left as it is")).to_be_visible(timeout=SLOW)
    expect(page.get_by_role("link", name="soft.png")).to_be_visible()
    expect(page.get_by_text("Left as it is", exact=True)).to_be_visible()
    shows(page, "several-done")
    page.reload()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download 1 result (ZIP)").click()
    with zipfile.ZipFile(download.value.path()) as packed:
        assert packed.testzip() is None
        assert packed.namelist() == ["soft.restored.png", "soft.restored.json"]
        assert Image.open(io.BytesIO(packed.read("soft.restored.png"))).size == (64, 64)
        found = json.loads(packed.read("soft.restored.json"))["found"]
        assert found["operator"]["type"] == "gaussian_blur"
    page.get_by_role("link", name="soft.png").click()
    expect(page.get_by_role("region", name="What was undone")).to_be_visible()
    assert all("422" in each for each in complaints)  # the refused picture
    complaints.clear()


def test_the_pictures_of_a_zip_file_are_sent_and_can_be_canceled(page: Page, stack: Stack) -> None:
    folder = {f"trip/{n}.png": picture(2) for n in range(3)}
    give(page, archive({**folder, "trip/notes.txt": b"no", "__MACOSX/trip/._0.png": b"no"}))
    panel = page.get_by_role("region", name="Several pictures")
    expect(panel.get_by_role("listitem")).to_have_text(["0.png", "1.png", "2.png"])
    sampler(page, steps=60, inner_steps=60)
    panel.get_by_role("button", name="Restore 3 pictures").click()
    expect(page.get_by_role("heading", name="3 pictures", level=1)).to_be_visible(timeout=SLOW)
    shows(page, "several-running")
    ids = page.url.partition("#jobs=")[2].split(",")
    page.get_by_role("button", name="Cancel all").click()
    expect(page.get_by_text("3 of 3 finished")).to_be_visible(timeout=SLOW)
    assert {stack.wait(job)["state"] for job in ids} == {"canceled"}


def test_a_zip_that_unpacks_to_more_than_a_picture_is_refused(page: Page) -> None:
    """The declared size is checked, and not trusted."""
    bomb = archive({"a.png": bytes(60_000_000), "b.png": b"x"})
    give(page, bomb)
    expect(page.get_by_role("alert")).to_contain_text("“a.png” is too large.")
    data = bytearray(bomb["buffer"])
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")
    page.get_by_role("button", name="Dismiss").click()
    give(page, {**bomb, "buffer": bytes(data)})
    expect(page.get_by_role("alert")).to_contain_text("“a.png” is too large.")
    page.get_by_role("button", name="Dismiss").click()
    give(page, {**bomb, "buffer": b"PK" + bytes(100)})
    expect(page.get_by_role("alert")).to_contain_text("cannot be read as a ZIP file")
    page.get_by_role("button", name="Dismiss").click()
    give(page, archive({f"{n}.png": b"x" for n in range(101)}))
    expect(page.get_by_role("alert")).to_contain_text("At most 100 pictures at once.")
    expect(page.get_by_role("region", name="Several pictures")).to_be_hidden()


def test_a_full_queue_keeps_what_was_accepted_and_names_the_rest(
    page: Page, complaints: list[str]
) -> None:
    answers = iter(["{}"])

    def answer(route: Route) -> None:
        if next(answers, None):
            return route.fallback()
        full = {"title": "Too many jobs", "status": 429, "detail": "Your queue is full."}
        return route.fulfill(
            status=429, content_type="application/problem+json", body=json.dumps(full)
        )

    page.route("**/v1/restore", answer)
    give(page, *(png(f"{n}.png", picture(2)) for n in range(3)))
    sampler(page, steps=1, inner_steps=1)
    page.get_by_role("button", name="Restore 3 pictures").click()
    expect(page.get_by_role("heading", name="1 picture", level=1)).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("1.png: Your queue is full.")).to_be_visible()
    expect(page.get_by_text("2.png: not sent")).to_be_visible()
    shows(page, "several-refused")
    expect(page.get_by_text(re.compile("1 of 1 finished"))).to_be_visible(timeout=SLOW)
    complaints.clear()
