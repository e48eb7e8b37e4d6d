"""Tables of the documentation that studies print."""

import json
from pathlib import Path

from research.degraded import restore as degraded
from research.peers import alternatives

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_degraded_pictures_shows_all_ten():
    page = (DOCS / "degraded.md").read_text()
    licences = (degraded.PICTURES / "LICENSES.md").read_text()
    told = {each["picture"] for each in json.loads(degraded.REPORT.read_text())}
    pictures = {path.name for path in degraded.PICTURES.iterdir()} - {"LICENSES.md"}
    assert told == pictures
    assert len(pictures) == 10
    for name in pictures:
        assert f"`{name}`" in page
        assert f"`{name}`" in licences
    assert degraded.report() in page


def test_the_page_of_alternatives_has_the_tables_of_the_measurements():
    page = (DOCS / "alternatives.md").read_text()
    for table in (
        alternatives.photograph_table(),
        alternatives.time_table(),
        alternatives.document_table(),
    ):
        assert table in page
