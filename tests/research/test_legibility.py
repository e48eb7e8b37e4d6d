"""What the studies of documents count: misread characters, and areas under curves."""

import math
import random
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from research.common import legibility
from research.common.pictures import middles
from research.common.without_prior import EQUAL, SINGLE, EqualLogits
from research.prior_worth import training_curve
from research.prior_worth.training_curve import NO_SNAPSHOT, Point
from research.uncertainty import characters as guesses
from tests.engines import image_engine
from training.documents.evaluation import rendered
from training.documents.fonts import Face
from training.documents.words import Writer

ROOT = Path(__file__).parents[2]
FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"


def test_replaced_and_missing_characters_are_wrong_and_added_ones_only_count():
    assert legibility.wrong_characters("minimum", "minirnum") == [False] * 4 + [True] + [False] * 2
    assert legibility.wrong_characters("a cat", "a ct") == [False, False, False, True, False]
    assert legibility.wrong_characters("cat", "cart") == [False] * 3
    assert legibility.error_rate("cat", "cart") == pytest.approx(1 / 3)


def test_the_area_under_the_curve_is_one_for_a_sure_sign_and_a_half_for_none():
    wrong = np.array([False, True, False, True])
    assert legibility.auc([0.1, 0.8, 0.2, 0.9], wrong) == 1
    assert legibility.auc([0.8, 0.1, 0.9, 0.2], wrong) == 0
    assert legibility.auc([1.0, 1.0, 1.0, 1.0], wrong) == 0.5
    assert math.isnan(legibility.auc([0.1, 0.2], np.array([True, True])))


def character(page: str, wrong: bool, spread: float) -> guesses.Character:
    others = {"samples": 0.1, "edges": 1.0, "error": 0.1}
    doubts = {"unconfirmed": 0.0, "unconfirmed_in_noise": 0.0}
    return guesses.Character("motion_blur", page, 0, int(wrong), spread, **others, **doubts)


def test_characters_that_other_samples_do_not_confirm_are_doubted():
    doubts = guesses.unconfirmed("a cat", "a cot", ["a cat", "a cot"])
    assert doubts == [0, 0, 0, 0.5, 0]
    # one that the result lacks is as doubtful as its neighbours
    assert guesses.unconfirmed("minimum", "minimm", ["minirm"])[5] == 1
    assert guesses.unconfirmed("cat", "", [""]) == [1, 1, 1]


def test_a_page_that_is_worse_as_a_whole_shows_nothing_about_its_characters():
    each = [
        *(character("good", wrong, 0.1) for wrong in (True, False, False, False)),
        *(character("bad", wrong, 0.5) for wrong in (True, True, True, False)),
    ]
    assert guesses.area(each, "spread") == 0.75
    assert guesses.area_within_pages(each, "spread") == 0.5
    better = [*each, character("good", True, 0.2)]
    assert guesses.area_within_pages(better, "spread") == pytest.approx((3 + 1.5 + 1.5) / 9)


class Words(Writer):
    """Writes the same words every time."""

    def prose(self, characters: int) -> str:
        return "Every letter stands in its own box"


def test_boxes_hold_the_ink_of_their_characters():
    face = Face(FONT, "DejaVu Sans", "dejavu")
    ink, lines = rendered(face, Words([], random.Random(0)), 128, 20)
    boxes = legibility.boxes(lines, face, 20)
    text = " ".join(lines)
    assert len(lines) > 2
    assert len(boxes) == len(text)
    covered = np.zeros_like(ink)
    for character, box in zip(text, boxes, strict=True):
        assert (box is None) == (character == " ")
        if box is not None:
            left, top, right, bottom = box
            assert ink[top:bottom, left:right].max() > 100, character
            covered[top:bottom, max(0, left - 1) : right + 1] = 1
    assert (ink * (1 - covered)).sum() < 0.01 * ink.sum()


def test_the_documents_prior_knows_more_of_withheld_documents_than_equal_logits():
    pictures = middles(ROOT / "examples/documents", 10)
    prior = image_engine("embedded_documents").prior
    nothing = training_curve.nats(EqualLogits(prior), pictures)
    assert nothing == pytest.approx(math.log(64), abs=1e-3)
    assert training_curve.nats(prior, pictures) < nothing - 2


def test_the_training_curve_compares_the_same_document_and_task(tmp_path):
    points = [
        Point(
            step=step,
            nats=nats,
            task=task,
            image=image,
            method=method,
            psnr=base + gain,
            decodes=100,
        )
        for step, nats, gained in ((NO_SNAPSHOT, 8.3, 0.0), (0, 8.0, -0.5), (500, 4.0, 0.5))
        for image, base in (("page", 10.0), ("scan", 20.0))
        for task in training_curve.TASKS
        for method, gain in (
            {EQUAL: 0.0, SINGLE: 0.1}
            if step == NO_SNAPSHOT
            else {"APS": gained, "random order": gained - 0.2}
        ).items()
    ]
    assert "| 500 | 4.00 | +0.50 [0.50, 0.50] | +0.40 [0.40, 0.40] |" in (
        training_curve.summary(points)
    )
    training_curve.draw(points, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000
