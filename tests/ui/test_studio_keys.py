"""The studio with API keys: entered once, not readable by scripts."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import Browser, Page, expect

from tests.stack import Stack, png
from tests.ui.pages import choose, ended, findings, sampler, submit
from tests.ui.widths import too_wide


def test_after_entering_a_key_once_everything_works(
    browser: Browser, guarded: httpx.Client, token: str
) -> None:
    context = browser.new_context(
        base_url=str(guarded.base_url), viewport={"width": 1280, "height": 900}
    )
    page, addresses = context.new_page(), list[str]()
    page.on("request", lambda request: addresses.append(request.url))
    page.goto("/")
    key = page.get_by_label("API key", exact=True)
    expect(key).to_be_focused()
    alert = page.get_by_role("dialog").get_by_role("alert")
    assert findings(page) == []
    key.fill("no key at all")
    page.keyboard.press("Enter")
    expect(alert).to_contain_text("A key has the form aps_")
    key.fill(token[:-3] + "xyz")
    page.get_by_role("button", name="Continue").click()
    expect(alert).to_contain_text("unknown to the service")
    assert too_wide(page, "key") == []
    key.fill(f" {token}\n")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Restore a picture")).to_be_visible()

    # the stream of events, the previews and the files need the cookie; sending needs the page's
    # origin
    choose(page, png(32, 32))
    page.get_by_text("Low resolution", exact=True).click()
    sampler(page, steps=4, inner_steps=1)
    job_id = submit(page)
    ended(page, "Restored")
    result = page.get_by_role("img", name="The result")
    assert result.evaluate("image => image.decode().then(() => image.naturalWidth)") == 128
    assert [address for address in addresses if "/events" in address]
    assert [address for address in addresses if "/previews/" in address]
    page.get_by_text("Use it in code").click()
    expect(page.locator(".code pre")).to_contain_text("Bearer $APS_API_KEY")
    page.reload()
    ended(page, "Restored")
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("listitem")).to_have_count(1)

    assert page.evaluate("document.cookie") == ""
    kept = page.evaluate(
        "JSON.stringify([localStorage, sessionStorage, document.documentElement.outerHTML])"
    )
    for where in (kept, *addresses):
        assert token[17:] not in where
    [cookie] = context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (
        "aps_session",
        True,
        "Strict",
        "/v1",
    )

    page.get_by_role("button", name=re.compile("ready")).click()
    expect(page.get_by_text("Signed in as eve.")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(key).to_be_visible()
    assert context.cookies() == []
    assert (
        guarded.get(
            f"/v1/jobs/{job_id}", headers={"Cookie": f"aps_session={cookie['value']}"}
        ).status_code
        == 401
    )
    page.get_by_role("button", name="Not now").click()
    expect(page.get_by_role("alert")).to_contain_text("Authorization: Bearer")
    page.get_by_role("button", name="Try again").click()
    expect(key).to_be_visible()
    context.close()


def test_pages_of_other_origins_can_do_nothing(
    browser: Browser, stack: Stack, guarded: httpx.Client, token: str
) -> None:
    context = browser.new_context()
    page: Page = context.new_page()
    page.goto(str(guarded.base_url))
    page.get_by_label("API key", exact=True).fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Restore a picture")).to_be_visible()
    other = context.new_page()
    other.route(
        "http://127.0.0.1:9/",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f"<form method=post action={guarded.base_url}/v1/session>",
        ),
    )
    other.goto("http://127.0.0.1:9/")
    with other.expect_navigation() as answer:
        other.evaluate("document.forms[0].submit()")
    assert answer.value.status == 403
    assert "aps_session" in answer.value.request.all_headers()["cookie"], (
        "another port is the same site, so the cookie alone would not do"
    )
    context.close()
