"""Training of the text models: what is learnt from, and what is withheld."""

import io
import random
import tarfile

import pytest

from training import turns


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "text.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        for name, count in (
            ("train/wordnet_qa.txt", 200),
            ("eval/wordnet_qa.txt", 3),
            ("train/unknown.txt", 5),
        ):
            text = "\n".join(
                f"What is thing {i}? Thing {i}: one of {name}." for i in range(count)
            ).encode()
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return path


def test_the_judge_is_trained_on_other_lines(archive):
    guide, judge, held_out = (turns.read(archive, split) for split in ("guide", "judge", "eval"))
    assert set(guide) == {"wordnet_qa"}
    assert not set(guide["wordnet_qa"]) & set(judge["wordnet_qa"])
    assert len(guide["wordnet_qa"]) + len(judge["wordnet_qa"]) == 200
    assert 20 < len(judge["wordnet_qa"]) < 100
    assert len(held_out["wordnet_qa"]) == 3


def test_lines_become_prompts_and_answers():
    rng = random.Random(0)
    assert turns.turn("wordnet_qa", "What is oak? Oak: a tree.", rng) == (
        "What is oak?",
        "Oak: a tree.",
    )
    line = "The lantern was lit. Nobody noticed the stranger."
    made = {turns.turn("austen", line, rng) for _ in range(50)}
    assert ("The lantern was lit.", "Nobody noticed the stranger.") in made
    assert ("Write a short paragraph about lantern.", line) in made


def test_encoded_pairs_fit_the_length_and_end(archive):
    lines = turns.read(archive, "guide")
    tokenizer = turns.train_tokenizer(lines["wordnet_qa"])
    sampler = turns.TurnSampler(lines, tokenizer, 24, seed=0)
    for row in sampler.draw(20):
        assert len(row.prompt) + len(row.answer) <= 24
        assert row.prompt[0] == turns.special(tokenizer, turns.PROMPT)
        assert row.prompt[-1] == turns.special(tokenizer, turns.ANSWER)
        assert row.answer[-1] == sampler.eos or len(row.prompt) + len(row.answer) == 24
