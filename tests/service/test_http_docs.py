"""docs/http-interface.md agrees with the service."""

from __future__ import annotations

import re
from pathlib import Path

from service.api.problems.errors import STATUS
from service.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/http-interface.md").read_text()


def test_the_table_of_errors_is_complete() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (\d{3}) \|", PAGE, re.MULTILINE))
    assert told == {kind.code: str(status) for kind, status in STATUS.items()}


def test_settings_and_links_exist() -> None:
    assert set(re.findall(r"\bAPS_[A-Z_]+", PAGE)) <= {
        f"APS_{name.upper()}" for name in Settings.model_fields
    }
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_the_webhooks_pauses_are_the_default_ones() -> None:
    units = {"s": 1, "min": 60, "h": 3600}
    [told] = re.findall(r"retried after (.*?), always", PAGE)
    assert [
        int(number) * units[unit] for number, unit in re.findall(r"(\d+) (s|min|h)", told)
    ] == Settings().webhook_retry_seconds
