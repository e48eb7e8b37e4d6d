"""``aps guide`` and ``aps eval-text``."""

import csv
import json

from click.testing import CliRunner

from aps_cli.main import main

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


def test_guide_explains_what_is_wrong():
    for arguments, told in (
        (["guide", ""], "prompt"),
        (["guide", "x", "--steps", "0"], "steps"),
        (["guide", "x", "--prior", "embedded"], "embedded_text"),
    ):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_eval_text_compares_both_at_the_same_seeds(tmp_path):
    out = tmp_path / "answers.csv"
    done = CliRunner().invoke(
        main,
        ["eval-text", "--limit", "2", "--seeds", "2", "--threads", "1", "-o", str(out), *SMALL],
    )
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [(row["seed"], row["method"]) for row in rows] == [
        ("0", "unguided"),
        ("0", "guided"),
        ("1", "unguided"),
        ("1", "guided"),
    ] * 2
    assert "of 4 pairs" in done.stdout
