"""Comparison of ways to answer, and files of public benchmarks."""

import json
import math

import pytest

from aps_core.engines.engine import TextEngine
from aps_core.errors import InvalidSpec
from aps_core.evaluation.questions import Question, load_questions, paper_questions
from aps_core.evaluation.text import BEST_OF, UNGUIDED, Comparison, Judges, Row
from aps_core.evaluation.text_summary import distinct_bigrams, summary
from aps_core.text.config import TextConfig
from aps_core.text.rewards import LogLikelihoodReward
from tests.engines import text_engine

SMALL = TextConfig(max_new_tokens=8, steps=4, learning_rate=2.0)


@pytest.fixture(scope="module")
def engine() -> TextEngine:
    return text_engine()


def test_every_method_answers_from_the_same_seeds(engine):
    # the same models, to compare with
    independent = engine.reward_model(LogLikelihoodReward())
    judges = Judges.of(engine, engine.reward, independent)
    comparison = Comparison(engine, SMALL, seeds=2, judges=judges)
    methods = comparison.methods(2, 3)
    rows = comparison.evaluate([Question("What is oak?"), Question("Is it tall?")], methods)
    names = [UNGUIDED, BEST_OF, "aps", "entrgi", "expectation"]
    assert [row.method for row in rows] == names * 4
    assert [row.samples for row in rows[:5]] == [1, 3, 2, 2, 2]
    for row in rows:
        assert row.judge == pytest.approx(row.reward, abs=1e-5)
        assert row.likelihood is not None
        assert row.likelihood < 0
        assert row.reward >= row.mean_reward
    assert any(rows[start + 1].reward != rows[start].reward for start in range(0, 20, 5))
    text = summary(rows)
    assert "Gain over `unguided`" in text
    assert text.count("| entrgi |") == 3


def test_best_of_k_takes_at_most_the_time_of_guidance(engine, monkeypatch):
    """The number of answers is the largest that is not slower, here of made-up times."""
    comparison = Comparison(engine, SMALL, seeds=1)
    asked = []

    def seconds(self, method, prompt):
        asked.append(method.spec.get("num_samples", 1))
        return 5.0 if method.spec.get("guidance", True) else 0.9 * method.spec["num_samples"]

    monkeypatch.setattr(Comparison, "_seconds", seconds)
    assert comparison.matching_best_of(1, "x") == 4
    assert asked == [1, 2, 4, 8]


def row(prompt: str, method: str, reward: float, seed: int = 0) -> Row:
    return Row(
        prompt=prompt,
        seed=seed,
        method=method,
        reward=reward,
        mean_reward=reward,
        judge=None,
        likelihood=None,
        distinct=1.0,
        tokens=2,
        samples=1,
        seconds=0.1,
        cpu_seconds=0.1,
        text="a b",
    )


def test_gains_are_paired_over_prompts():
    """A constant gain has an empty interval, however much the prompts differ."""
    rows = [
        row(f"p{number}", method, 10.0 * number + gain + seed, seed)
        for number in range(6)
        for seed in range(2)
        for method, gain in ((UNGUIDED, 0.0), ("aps", 0.5))
    ]
    assert "| aps | +0.500 [+0.500, +0.500] |" in summary(rows)


def test_repeated_answers_are_less_diverse():
    assert distinct_bigrams(["a b c", "a b c"]) == 0.5
    assert distinct_bigrams(["a b c", "c b a"]) == 1
    assert math.isnan(distinct_bigrams(["a", ""]))


RM_BENCH = [{"id": "1", "prompt": "Why?", "chosen": ["a", "b", "c"], "rejected": ["x", "y", "z"]}]
JUDGE_BENCH = [
    {"pair_id": "1", "question": "Why?", "response_A": "a", "response_B": "b", "label": "B>A"},
    {"pair_id": "2", "question": "How?", "response_A": "c", "response_B": "d", "label": "A>B"},
]
REWARD_BENCH = [
    {"id": "1", "prompt": "Why?", "chosen": ["a"], "rejected": ["x", "y"], "num_correct": 1}
]


@pytest.mark.parametrize(
    ("name", "entries", "expected"),
    [
        (
            "total.json",
            RM_BENCH,
            [Question("Why?", tuple((good, bad) for good in "abc" for bad in "xyz"))],
        ),
        (
            "gpt.jsonl",
            JUDGE_BENCH,
            [Question("Why?", (("b", "a"),)), Question("How?", (("c", "d"),))],
        ),
        ("test.jsonl", REWARD_BENCH, [Question("Why?", (("a", "x"), ("a", "y")))]),
    ],
)
def test_benchmark_files(tmp_path, name, entries, expected):
    file = tmp_path / name
    lines = [json.dumps(entry) for entry in entries]
    file.write_text("\n".join(lines) if name.endswith("l") else json.dumps(entries))
    assert load_questions(file) == expected


def test_other_files(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("Why?\n\nHow?\n")
    assert load_questions(file) == [Question("Why?"), Question("How?")]
    assert len(paper_questions()) == 20
    for text in ("[]", '[{"question": "Why?"}]', '[{"response_A": "a", "label": "A=B"}]', "{"):
        (wrong := tmp_path / "wrong.json").write_text(text)
        with pytest.raises(InvalidSpec, match=r"wrong\.json"):
            load_questions(wrong)


def test_the_reward_model_ranks_the_pairs_of_a_benchmark(engine):
    comparison = Comparison(engine, SMALL, seeds=1)
    prompt = "Write a sentence about money."
    likely, noise = "The man had no money.", "money money the had had."
    assert comparison.accuracy([Question(prompt, ((likely, noise),))]) == 1
    assert comparison.accuracy([Question(prompt, ((noise, likely), (likely, noise)))]) == 0.5
    assert comparison.accuracy([Question(prompt)]) is None
