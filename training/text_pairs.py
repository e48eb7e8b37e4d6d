"""Converts the text corpus to prompt and answer pairs for the text prior, reward model and judge.

Expects ``text.tar.xz`` with ``train/NAME.txt`` and ``eval/NAME.txt``, one paragraph per line.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from training.stories import Pair, write

VOCABULARY = 4096
EOS, MASK, PROMPT, ANSWER = "<|endoftext|>", "<|mask|>", "<|prompt|>", "<|answer|>"
PROMPT_FORMAT = PROMPT + "{prompt}" + ANSWER

GENERATED = 0.6
"""Share of generated texts (``training/stories.py``); the rest are sentences of the corpus."""

SOURCES = ("austen", "wesnoth", "endless_sky", "fortunes", "wordnet_examples", "freedroid")
"""Novels, game dialogue, quotations and usage examples: prose with many simple sentences."""

COMMON_WORDS = 5000
"""Only sentences whose words all are among this many most frequent ones of the corpus are kept.
Nearly all of these words are single tokens, so the models read and write words, not syllables.
"""

SENTENCE = re.compile(r"""[A-Z][A-Za-z' ,;]*[.!?]""")
WORD = re.compile(r"[A-Za-z']+")

JUDGE_SHARE = 30
"""Percentage of sentences reserved for the judge; the prior and the reward model are not trained on
them.
"""

Split = Literal["guide", "judge", "eval"]


def read(archive: Path, split: Split) -> list[str]:
    """Reads the simple sentences of all sources: 4 to 18 common words, without quotation marks.

    ``guide`` and ``judge`` are disjoint parts of the training sentences; ``eval`` is in neither.
    """
    found: dict[str, list[str]] = {"train": [], "eval": []}
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(member.name)
            if path.stem in SOURCES and (file := tar.extractfile(member)):
                found[path.parent.name] += file.read().decode().splitlines()
    counts = Counter(word.lower() for line in found["train"] for word in WORD.findall(line))
    common = {word for word, _ in counts.most_common(COMMON_WORDS)}
    lines = found["eval" if split == "eval" else "train"]
    sentences = dict.fromkeys(text for line in lines for text in simple_sentences(line, common))
    return [
        text
        for text in sentences
        if split == "eval" or (zlib.crc32(text.encode()) % 100 < JUDGE_SHARE) == (split == "judge")
    ]


def simple_sentences(paragraph: str, common: set[str]) -> Iterator[str]:
    """The sentences of a paragraph that consist of 4 to 18 common words."""
    for text in re.split(r"(?<=[.!?])[\"']?\s+", paragraph):
        text = text.strip("\"'` ")
        words = WORD.findall(text)
        if (
            4 <= len(words) <= 18
            and SENTENCE.fullmatch(text)
            and not text.endswith(("Mr.", "Mrs.", "St."))
            and all(word.lower() in common for word in words)
        ):
            yield text


def pair(text: str, rng: Random) -> Pair:
    """Converts a sentence to the answer to an instruction that names one of its long words."""
    words = sorted(set(re.findall(r"\b[a-z]{4,}\b", text)), key=len)[-3:]
    return (f"Use {rng.choice(words)} in a sentence." if words else "Say something."), text


def train_tokenizer(sentences: list[str], seed: int) -> Tokenizer:
    """Trains a byte-pair vocabulary on sentences and as many generated pairs; the special tokens
    have the first ids.
    """
    random = Random(seed)
    generated = [text for _ in sentences for text in write(random)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [EOS, MASK, PROMPT, ANSWER]
    tokenizer.train_from_iterator(
        [*sentences, *generated],
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=special,
            initial_alphabet=alphabet,
            show_progress=False,
        ),
    )
    return tokenizer


def special(tokenizer: Tokenizer, text: str) -> int:
    """Returns the id of a special token."""
    found = tokenizer.token_to_id(text)
    if found is None:
        raise SystemExit(
            f"The tokenizer of this run has no token {text}, because another version created it;"
            " start a new run folder."
        )
    return found


@dataclass(frozen=True)
class Encoded:
    """Token ids of a pair: the prompt with its template, and the answer with its end token."""

    prompt: list[int]
    answer: list[int]


class PairSampler:
    """Draws encoded pairs of at most ``length`` tokens."""

    def __init__(self, sentences: list[str], tokenizer: Tokenizer, length: int, seed: int) -> None:
        self.sentences = sentences
        self.tokenizer = tokenizer
        self.length = length
        self.eos = special(tokenizer, EOS)
        self.random = Random(seed)

    def pair(self) -> Pair:
        """A generated text, or a sentence of the corpus."""
        if self.random.random() < GENERATED:
            return write(self.random)
        return pair(self.random.choice(self.sentences), self.random)

    def draw(self, count: int) -> list[Encoded]:
        """Draws ``count`` pairs."""
        return self.encode([self.pair() for _ in range(count)])

    def encode(self, pairs: list[Pair]) -> list[Encoded]:
        """Token ids of pairs."""
        prompts = self.tokenizer.encode_batch(
            [PROMPT_FORMAT.replace("{prompt}", prompt) for prompt, _ in pairs],
            add_special_tokens=False,
        )
        answers = self.tokenizer.encode_batch(
            [answer for _, answer in pairs], add_special_tokens=False
        )
        encoded = []
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = (
                prompt.ids
                if len(prompt.ids) <= self.length // 2
                else [*prompt.ids[: self.length // 2 - 1], prompt.ids[-1]]
            )
            encoded.append(Encoded(ids, [*answer.ids, self.eos][: self.length - len(ids)]))
        return encoded
