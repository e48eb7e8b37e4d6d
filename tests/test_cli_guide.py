"""``aps guide`` and ``aps eval-text``."""

import csv
import json

import pytest
from click.testing import CliRunner

from aps_cli.main import main
from aps_core.checkpoints.files import EMBEDDED

SMALL = ["--max-new-tokens", "8", "--steps", "4"]


def test_guide_prints_the_answer_and_its_reward():
    done = CliRunner().invoke(
        main, ["guide", "What is oak?", "--compare-unguided", "--seed", "3", *SMALL]
    )
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 2
    assert "guided, reward" in done.stderr
    told = json.loads(
        CliRunner().invoke(main, ["guide", "What is oak?", "--json", "--seed", "3", *SMALL]).stdout
    )
    assert told["answer"]["text"] == done.stdout.splitlines()[0]
    assert told["spec"]["sampler"]["steps"] == 4


def test_guide_answers_several_prompts_together():
    more = ["--more-prompts", '["What is a lamp?", "What is rain?"]']
    done = CliRunner().invoke(main, ["guide", "What is oak?", *more, *SMALL])
    assert done.exit_code == 0, done.output
    told = json.loads(
        CliRunner().invoke(main, ["guide", "What is oak?", "--json", *more, *SMALL]).stdout
    )
    assert done.stdout.splitlines() == [best["text"] for best in told["best_answers"]]
    assert [best["prompt"] for best in told["best_answers"]] == [0, 1, 2]


def test_guide_explains_what_is_wrong():
    for arguments, told in (
        (["guide", ""], "PROMPT"),
        (["guide", "x", "--steps", "0"], "steps"),
        (["guide", "x", "--prior", "embedded"], "embedded_text"),
    ):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_eval_text_compares_all_methods(tmp_path):
    out, questions = tmp_path / "answers.csv", tmp_path / "bench.jsonl"
    entry = {
        "question": "Write a sentence about money.",
        "response_A": "The man had no money.",
        "response_B": "money money the had.",
        "label": "A>B",
    }
    questions.write_text(json.dumps(entry) + "\n")
    judge = str(EMBEDDED / "text" / "reward")
    command = ["eval-text", "--questions", str(questions), "--judge", judge, "--seeds", "1"]
    more = ["--best-of", "2", "--num-samples", "2", "--threads", "1", "-o", str(out)]
    done = CliRunner().invoke(main, [*command, *more, *SMALL])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(out.read_text().splitlines()))
    names = ["unguided", "best_of", "aps", "entrgi", "expectation"]
    assert [row["method"] for row in rows] == names
    assert [row["samples"] for row in rows] == ["1", "2", "2", "2", "2"]
    assert "Gain over `best_of`" in done.stdout
    assert "prefers the right answer in 100.0% of the pairs" in done.stdout


def test_an_interrupted_eval_text_continues_from_its_file(tmp_path):
    out, questions = tmp_path / "answers.csv", tmp_path / "prompts.txt"
    questions.write_text("What is oak?\n")
    command = ["eval-text", "--questions", str(questions), "--seeds", "1", "--threads", "1"]
    command += ["-o", str(out), *SMALL]
    assert CliRunner().invoke(main, [*command, "--best-of", "2"]).exit_code == 0
    whole = out.read_text().splitlines()
    out.write_text("\n".join(whole[:3]) + "\n")
    questions.write_text("What is oak?\nWhat is rain?\n")
    done = CliRunner().invoke(main, command)  # K as before
    assert done.exit_code == 0, done.output
    assert done.stdout.count(" seed 0 ") == 3 + 5, "only missing answers are computed"
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["prompt"] for row in rows] == ["What is oak?"] * 5 + ["What is rain?"] * 5
    assert [row["text"] for row in rows[:5]] == [row["text"] for row in csv.DictReader(whole)]
    assert out.read_text().splitlines()[:3] == whole[:3]
    for other in (["--best-of", "4"], ["--learning-rate", "2"]):
        refused = CliRunner().invoke(main, [*command, *other])
        assert refused.exit_code == 2
        assert "other settings" in refused.stderr


@pytest.mark.parametrize("stop", [".", '["."]'])
def test_one_text_needs_no_brackets(stop):
    command = ["guide", "What is oak?", "--json", "--stop", stop, "--more-prompts", "7", *SMALL]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    spec = json.loads(done.stdout)["spec"]
    assert (spec["stop"], spec["more_prompts"]) == (["."], ["7"])


def test_members_of_families_are_given_by_name():
    told = json.loads(
        CliRunner()
        .invoke(
            main,
            [
                *["guide", "What is oak?", "--json", "--num-samples", "2", "--stop", '["."]'],
                *["--reward", "log_likelihood", "--relaxation", "entrgi", *SMALL],
            ],
        )
        .stdout
    )
    assert len(told["answers"]) == 2
    assert told["spec"]["stop"] == ["."]
    assert told["spec"]["reward"]["type"] == "log_likelihood"
    assert told["spec"]["sampler"]["relaxation"] == {"type": "entrgi", "token": "drawn"}
