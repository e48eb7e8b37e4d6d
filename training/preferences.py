"""Preferences made without labels: pairs of a better and a worse answer to one prompt.

The better answer is a text as it was written. The worse one has been damaged (fluency), answers
another prompt (topic), breaks off (completeness), or tells a sad story instead of a happy one
(sentiment, from the word lists of ``training/world.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.stories import Pair, write

Damage = Callable[[list[str], Random], list[str]]
"""Changes the words of an answer."""


def shuffled(words: list[str], rng: Random) -> list[str]:
    """The same words in another order."""
    return rng.sample(words, len(words))


def swapped(words: list[str], rng: Random) -> list[str]:
    """Some neighbouring words exchanged."""
    words = list(words)
    for _ in range(max(1, len(words) // 8)):
        i = rng.randrange(max(1, len(words) - 1))
        words[i : i + 2] = words[i : i + 2][::-1]
    return words


def dropped(words: list[str], rng: Random) -> list[str]:
    """A fifth of the words missing, at least one."""
    gone = rng.sample(range(len(words)), max(1, len(words) // 5))
    return [word for i, word in enumerate(words) if i not in gone]


def repeated(words: list[str], rng: Random) -> list[str]:
    """One to four words said two or three times."""
    start, count = rng.randrange(len(words)), rng.randint(1, 4)
    part = words[start : start + count]
    return [*words[:start], *part * rng.randint(2, 3), *words[start + count :]]


def truncated(words: list[str], rng: Random) -> list[str]:
    """The beginning only, not ending with a sentence."""
    kept = words[: rng.randrange(len(words))]
    while kept and kept[-1][-1] in ".!?":
        kept = kept[:-1]
    return kept


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage for damage in (shuffled, swapped, dropped, repeated, truncated)
}
KINDS = (*DAMAGES, "replaced", "off_topic", "sad")
"""What is worse about the worse answer."""


@dataclass(frozen=True)
class Preference:
    """Two answers to one prompt."""

    kind: str
    prompt: str
    better: str
    worse: str


class Preferences:
    """Draws preferences about pairs from ``pair``."""

    def __init__(self, pair: Callable[[], Pair], random: Random) -> None:
        self.pair = pair
        self.random = random

    def draw(self, kind: str | None = None) -> Preference:
        """One preference; ``kind`` is one of :data:`KINDS`, by default at random."""
        kind = kind or self.random.choice(KINDS)
        if kind == "sad":
            return self._happy_and_sad()
        prompt, answer = self.pair()
        _, other = self.pair()
        words, others = answer.split(), other.split()
        match kind:
            case "off_topic":
                worse = other
            case "replaced":
                places = self.random.sample(range(len(words)), max(1, len(words) // 5))
                worse = " ".join(
                    self.random.choice(others) if i in places else word
                    for i, word in enumerate(words)
                )
            case _:
                worse = " ".join(DAMAGES[kind](words, self.random))
        return self.draw(kind) if worse == answer else Preference(kind, prompt, answer, worse)

    def _happy_and_sad(self) -> Preference:
        """The same seed writes about the same hero, once with a happy and once with a sad end."""
        while True:
            seed = self.random.random()
            prompt, better = write(Random(seed), good=True)
            _, worse = write(Random(seed), good=False)
            if better != worse:
                return Preference("sad", prompt, better, worse)
