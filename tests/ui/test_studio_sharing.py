"""A result is shared by link, from the studio to somebody without a key."""

from __future__ import annotations

import json
import re

import httpx
from playwright.sync_api import Browser, ViewportSize, expect

from tests.stack import png
from tests.ui.pages import comparison, ended, findings, scrub
from tests.ui.widths import too_wide

QUICK = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": {"steps": 4, "inner_steps": 1}}


def test_somebody_without_a_key_sees_the_result_until_the_links_end(
    browser: Browser, guarded: httpx.Client, token: str
) -> None:
    job = guarded.post(
        "/v1/restore",
        files={"image": png(96, 64)},
        data={"spec": json.dumps(QUICK)},
        headers={"Authorization": f"Bearer {token}", "Prefer": "wait=60"},
        timeout=90,
    ).json()
    base, size = str(guarded.base_url), ViewportSize(width=1280, height=800)
    context = browser.new_context(base_url=base, viewport=size)
    owner = context.new_page()
    owner.goto(f"/#{job['id']}")
    owner.get_by_label("API key", exact=True).fill(token)
    owner.keyboard.press("Enter")
    ended(owner, "Restored")
    owner.get_by_role("button", name="Share", exact=True).click()
    link = owner.get_by_label("Link", exact=True)
    expect(link).to_be_focused()
    box = owner.get_by_role("region", name="Share this result")
    expect(box).to_contain_text(re.compile(r"without an API key, until .*\(\d+ hours\)"))
    expect(box).to_contain_text("works on this computer only")
    assert findings(owner) == []
    address = link.input_value()
    assert too_wide(owner, "share") == []
    owner.reload()
    expect(box).to_contain_text("Shared by link until")
    expect(link).to_be_hidden()

    other = browser.new_context(base_url=base, viewport=size)
    guest, requested = other.new_page(), list[str]()
    guest.on("request", lambda request: requested.append(request.url))
    guest.goto(address)
    ended(guest, "Restored")
    expect(guest.get_by_text("Shared with you by link, until")).to_be_visible()
    expect(comparison(guest)).to_be_attached()
    for picture in guest.locator(".stage img").all():
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    scrub(guest).fill("2")
    expect(guest.get_by_text("Step 2 of 4")).to_be_visible()
    expect(guest.get_by_text("Estimate after step 2")).to_be_visible()
    expect(guest.get_by_text("How it was made")).to_be_visible()
    for name in ("Share", "Edit and run again", "Start another", "Use it in code", "Cancel"):
        expect(guest.get_by_text(name, exact=True)).to_be_hidden()
    with guest.expect_download() as download:
        guest.get_by_role("link", name="Download PNG").click()
    assert download.value.path().read_bytes()[:4] == b"\x89PNG"
    secret = address.rpartition("/")[2]
    calls = [url for url in requested if "/v1/" in url]
    assert any("/previews/" in url for url in calls)
    assert all(f"/v1/shared/{job['id']}" in url and secret not in url for url in calls)
    assert guest.evaluate("document.cookie") == ""
    assert findings(guest) == []
    assert too_wide(guest, "shared") == []

    owner.get_by_role("button", name="End all links").click()
    expect(box).to_contain_text("All links to this result have ended.")
    guest.reload()
    expect(guest.get_by_role("alert")).to_contain_text("ended by its owner")
    expect(guest.get_by_label("API key", exact=True)).to_have_count(0)
    assert findings(guest) == []
    assert too_wide(guest, "shared-ended") == []
    guest.goto(f"{base}/shared.html#{job['id']}")
    expect(guest.get_by_role("alert")).to_contain_text("This address is incomplete")
    other.close()
    context.close()
    own = {"Authorization": f"Bearer {token}"}
    assert guarded.delete(job["urls"]["self"], headers=own).status_code == 204
