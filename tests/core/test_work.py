"""What a job costs, counted before it runs: ``benchmarks.work`` and the tables made from it."""

from pathlib import Path

import pytest

from benchmarks.cards import CARDS
from benchmarks.work import count as work
from benchmarks.work import counted, predicted, windows

PAGE = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text()


@pytest.fixture(scope="module")
def default():
    return work(512, 512, "after")


def test_the_documented_row_is_what_is_counted(default):
    assert counted([default])[-1] in PAGE
    assert predicted([default], "after")[-1] in PAGE


def test_the_default_job_meets_its_targets(default):
    """512x512 on an H200: 16 s and 18.5 GiB, by the count and the model of the time."""
    h200 = CARDS[0]
    assert h200.name == "H200"
    job = 1500 * h200.model_ms(default.tflop, default.gb) / 1e3
    assert job + 15 * default.prior_tflop / h200.tflops / h200.prior < 16
    assert 14.3 < default.gib < 18.5
    assert default.term_tflop == pytest.approx(0.321, rel=0.01)  # VGG16's five layers
    assert default.decoder_tflop == pytest.approx(2.41, rel=0.01)


def test_windows_of_a_large_picture():
    assert windows((32, 32)) == 1
    assert 9 <= windows((64, 64)) <= 16
