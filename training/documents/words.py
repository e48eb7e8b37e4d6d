"""Lines of English text for pages and screens."""

from __future__ import annotations

import random
import tarfile
from pathlib import Path

PUBLIC_DOMAIN = ("austen", "kjv", "devil", "jargon", "factbook")
"""Texts that may be shown in pictures of any licence."""


def read_lines(archive: Path, part: str = "train", names: tuple[str, ...] = ()) -> list[str]:
    """Paragraphs of ``text.tar.xz`` (``training/README.md``); ``part``: ``train`` or ``eval``.

    ``names``: the texts to read, all if empty.
    """
    lines: list[str] = []
    with tarfile.open(archive) as tar:
        for member in tar:
            folder, _, name = member.name.removesuffix(".txt").partition("/")
            if member.isfile() and folder == part and (not names or name in names):
                file = tar.extractfile(member)
                assert file is not None
                lines += file.read().decode().splitlines()[:20000]
    return lines


class Writer:
    """Draws sentences, labels and figures from lines of text."""

    def __init__(self, lines: list[str], rng: random.Random) -> None:
        self.lines = lines
        self.rng = rng

    def prose(self, characters: int) -> str:
        """Running text of at least ``characters`` characters, some of it capitals or figures."""
        parts: list[str] = []
        while sum(map(len, parts)) + len(parts) < characters:
            line = self.rng.choice(self.lines)
            start = self.rng.randrange(max(1, len(line) - 40))
            start = line.rfind(" ", 0, start) + 1
            parts.append(line[start : start + characters])
            if self.rng.random() < 0.1:
                parts.append(self.number())
        text = " ".join(parts)
        return text.upper() if self.rng.random() < 0.06 else text

    def label(self, words: int = 2) -> str:
        """One to ``words`` words, the first with a capital letter."""
        line = self.rng.choice(self.lines).split()
        start = self.rng.randrange(len(line))
        text = " ".join(line[start : start + self.rng.randint(1, words)])
        return text.strip(".,;:()\"'")[:24].capitalize() or "Name"

    def number(self) -> str:
        """A figure, an amount, a date or a code."""
        r = self.rng
        kinds = (
            lambda: str(r.randrange(10 ** r.randint(1, 6))),
            lambda: f"{r.uniform(0, 10 ** r.randint(1, 5)):,.2f}",
            lambda: f"{r.randint(1, 31):02d}.{r.randint(1, 12):02d}.{r.randint(1900, 2030)}",
            lambda: f"{r.choice('$')}{r.uniform(0, 1000):.2f}",
            lambda: f"{r.randint(0, 100)} %",
            lambda: f"{r.choice('ABCDEFGHKLMNPRSTX')}{r.randint(10, 999)}-{r.randint(1000, 9999)}",
            lambda: f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}",
        )
        return r.choice(kinds)()
