"""Converts the text corpus to prompt and answer pairs for the text prior, reward model and judge.

Expects ``text.tar.xz`` with ``train/NAME.txt`` and ``eval/NAME.txt``, one paragraph per line.
"""

from __future__ import annotations

import random
import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
EOS, MASK, PROMPT, ANSWER = "<|endoftext|>", "<|mask|>", "<|prompt|>", "<|answer|>"
PROMPT_FORMAT = PROMPT + "{prompt}" + ANSWER

SHARE = {
    "wordnet_qa": 0.40,
    "wordnet_examples": 0.12,
    "austen": 0.10,
    "wesnoth": 0.09,
    "endless_sky": 0.07,
    "fortunes": 0.06,
    "factbook": 0.03,
    "kjv": 0.02,
    "devil": 0.02,
    "jargon": 0.02,
    "freedroid": 0.01,
    "freeorion": 0.01,
    "gimp_help": 0.01,
    "gcide": 0.01,
    "foldoc": 0.01,
    "anarchism_faq": 0.01,
}
"""Sampling weight of each source: high for questions and prose, low for dictionaries and tracts."""

JUDGE_SHARE = 30
"""Percentage of lines reserved for the judge; the prior and the reward model are not trained on
them.
"""

Split = Literal["guide", "judge", "eval"]
Turn = tuple[str, str]
"""A prompt, perhaps empty, and its answer."""


def read(archive: Path, split: Split) -> dict[str, list[str]]:
    """Reads the lines of all sources.

    ``guide`` and ``judge`` are disjoint parts of the training lines; ``eval`` is in neither.
    """
    folder = "eval" if split == "eval" else "train"
    found: dict[str, list[str]] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(member.name)
            if (
                path.parent.name == folder
                and path.stem in SHARE
                and (file := tar.extractfile(member))
            ):
                lines = file.read().decode().splitlines()
                found[path.stem] = [
                    line
                    for line in lines
                    if split == "eval"
                    or (zlib.crc32(line.encode()) % 100 < JUDGE_SHARE) == (split == "judge")
                ]
    return found


def turn(source: str, line: str, rng: random.Random) -> Turn:
    """Converts a line to a prompt and an answer.

    Definitions already are questions. Half of the other lines become an answer to an instruction
    that names one of their long words. In the rest, the first sentence is the prompt and is to be
    continued.
    """
    if source == "wordnet_qa":
        question, _, answer = line.partition("? ")
        return question + "?", answer
    words = sorted(set(re.findall(r"\b[a-z]{5,}\b", line)), key=len)[-3:]
    if words and rng.random() < 0.5:
        kind = "a sentence" if source == "wordnet_examples" else "a short paragraph"
        return f"Write {kind} about {rng.choice(words)}.", line
    sentences = re.split(r"(?<=[.!?]) ", line, maxsplit=1)
    return (
        (sentences[0], sentences[1])
        if len(sentences) == 2 and len(sentences[0]) < 200
        else ("", line)
    )


def train_tokenizer(lines: list[str]) -> Tokenizer:
    """Trains a byte-pair vocabulary on the lines; the special tokens have the first ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [EOS, MASK, PROMPT, ANSWER]
    tokenizer.train_from_iterator(
        lines,
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


class TurnSampler:
    """Draws encoded pairs of at most ``length`` tokens; :data:`SHARE` weights the sources."""

    def __init__(
        self, lines: dict[str, list[str]], tokenizer: Tokenizer, length: int, seed: int
    ) -> None:
        self.lines = lines
        self.tokenizer = tokenizer
        self.length = length
        self.eos = special(tokenizer, EOS)
        self.random = random.Random(seed)
        self.weights = [SHARE[name] for name in lines]

    def draw(self, count: int) -> list[Encoded]:
        """Draws ``count`` pairs."""
        names = self.random.choices(list(self.lines), self.weights, k=count)
        turns = [turn(name, self.random.choice(self.lines[name]), self.random) for name in names]
        prompts = self.tokenizer.encode_batch(
            [PROMPT_FORMAT.replace("{prompt}", prompt) for prompt, _ in turns],
            add_special_tokens=False,
        )
        answers = self.tokenizer.encode_batch(
            [answer for _, answer in turns], add_special_tokens=False
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
