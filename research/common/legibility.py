"""Reading pictures of known text with tesseract: which characters are wrong.

Needs Debian's ``tesseract-ocr`` (with its English model) and the extra ``bench``.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from scipy.stats import mannwhitneyu
from torch import Tensor

from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from training.documents.evaluation import ZOOM, one_face_a_package, rendered
from training.documents.fonts import Face
from training.documents.sources import Split
from training.documents.words import PUBLIC_DOMAIN, Writer, read_lines

ENLARGED = 3
"""Every picture is enlarged (bicubic) before tesseract reads it: it wants capitals of 30 pixels."""
Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels."""


@dataclass(frozen=True)
class Page:
    """A rendered page of known text."""

    name: str
    picture_CHW: Tensor
    """(3, side, side) in [-1, 1], black on white."""
    text: str
    """Its lines, joined by spaces."""
    boxes: list[Box | None]
    """Where each character of ``text`` stands; None for a space."""


def require_tesseract() -> None:
    """Checks that the program is installed.

    Raises:
        InvalidSpec: it is not.
    """
    if shutil.which("tesseract") is None:
        raise InvalidSpec("This needs tesseract: apt-get install tesseract-ocr.")


def pages(
    corpus: Path, text: Path, side: int, em: int, seed: int, split: Split = "evaluation"
) -> list[Page]:
    """One page of new text in every font family of a split.

    ``corpus`` and ``text`` are those of ``training/documents``.
    """
    lines = [line for line in read_lines(text, "eval", PUBLIC_DOMAIN) if len(line) > 40]
    writer = Writer(lines, random.Random(seed))
    found = []
    for face in one_face_a_package(corpus / "unpacked", split):
        ink, lines = rendered(face, writer, side, em)
        x_HW = 1 - torch.from_numpy(ink).float() / 127.5
        about = face.package.removeprefix("fonts-"), x_HW.expand(3, side, side), " ".join(lines)
        found.append(Page(*about, boxes(lines, face, em)))
    return found


def boxes(lines: Sequence[str], face: Face, em: int) -> list[Box | None]:
    """Boxes of the characters of ``lines``, joined by spaces, as ``rendered`` sets them."""
    font, margin, step = face.at(em * ZOOM), em // 2, round(em * 1.35)
    found: list[Box | None] = []
    for number, line in enumerate(lines):
        top = margin + number * step
        for i, character in enumerate(line):
            left, right = (margin + font.getlength(line[:end]) / ZOOM for end in (i, i + 1))
            inside = int(left), top, int(np.ceil(right)), top + step
            found.append(None if character == " " else inside)
        found.append(None)
    return found[:-1]


def read(x_CHW: Tensor) -> str:
    """What tesseract reads in a picture (3, H, W) in [-1, 1], as one block of text."""
    height, width = x_CHW.shape[-2:]
    size = height * ENLARGED, width * ENLARGED
    enlarged = F.interpolate(x_CHW[None], size, mode="bicubic").clamp(-1, 1)
    framed = F.pad(enlarged, (10,) * 4, mode="replicate")[0]
    file = io.BytesIO()
    images.to_pil(framed).convert("L").save(file, "PNG")
    result = subprocess.run(
        ["tesseract", "stdin", "stdout", "--psm", "6", "--dpi", "300", "-l", "eng"],
        input=file.getvalue(),
        capture_output=True,
        check=True,
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
    )
    return " ".join(result.stdout.decode().split())


def wrong_characters(truth: str, found: str) -> list[bool]:
    """Which characters of ``truth`` are replaced or missing in ``found``, by the fewest edits."""
    wrong = [False] * len(truth)
    for edit in Levenshtein.editops(truth, found):
        if edit.tag != "insert":
            wrong[edit.src_pos] = True
    return wrong


def error_rate(truth: str, found: str) -> float:
    """Edits per character of the truth: replaced, missing and added characters."""
    return Levenshtein.distance(truth, found) / len(truth)


def auc(scores: Sequence[float] | NDArray[np.float32], positive: NDArray[np.bool_]) -> float:
    """Probability that a positive scores higher than a negative; NaN if all are of one kind."""
    values = np.asarray(scores, dtype=float)
    if positive.all() or not positive.any():
        return float("nan")
    better = mannwhitneyu(values[positive], values[~positive]).statistic
    return float(better) / (int(positive.sum()) * int((~positive).sum()))


def edges(x_CHW: Tensor) -> Tensor:
    """Length (H, W) of the luma's gradient: what foretells errors without any samples."""
    luma_HW = x_CHW.mean(0)
    down_HW = F.pad(luma_HW.diff(dim=0), (0, 0, 0, 1))
    right_HW = F.pad(luma_HW.diff(dim=1), (0, 1))
    return (down_HW.square() + right_HW.square()).sqrt()
