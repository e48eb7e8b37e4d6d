"""Tasks without input picture or with text output, through all real processes."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from PIL import Image

from tests.stack import Stack, png

ANSWER = {"max_new_tokens": 8, "steps": 4}


def submitted(stack: Stack, task: str, **spec: Any) -> dict[str, Any]:
    answer = stack.http.post(f"/v1/{task}", json=spec)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def test_a_prompt_is_answered_with_progress_per_step(stack: Stack) -> None:
    job = submitted(
        stack, "guide", prompt="What is a lantern?", compare_unguided=True, sampler=ANSWER
    )
    assert job["prior"] == "embedded_text"
    assert job["output_size"] is None
    events = list(stack.events(job["id"]))
    steps = [data for _, kind, data in events if kind == "progress"]
    assert [(step["step"], step["guided"]) for step in steps] == [
        (number, number <= 4) for number in range(1, 9)
    ]
    assert all("preview_url" not in step for step in steps)
    assert sorted(place for step in steps[:4] for place in step["decided"]) == list(range(8)), (
        "every token is decided exactly once"
    )
    assert steps[0]["text"].count("▢") == 8 - len(steps[0]["decided"])
    assert len(steps[0]["reward_curve"]) == 3
    assert steps[4]["reward_curve"] == []

    done = stack.job(job["id"])
    assert done["state"] == "succeeded"
    assert done["progress"]["text"] == steps[-1]["text"]
    assert {artifact["name"] for artifact in done["artifacts"]} == {
        "answer.txt",
        "unguided.txt",
        "result.json",
    }
    sidecar = json.loads(stack.artifact(job["id"], "result.json"))
    assert stack.artifact(job["id"], "answer.txt").decode() == sidecar["answer"]["text"]
    assert done["metrics"]["reward"] == sidecar["answer"]["reward"]
    assert "not evidence" in sidecar["notice"]


def test_a_picture_is_generated_from_a_prompt(stack: Stack) -> None:
    job = submitted(
        stack,
        "generate",
        prompt="a red flower",
        width=40,
        height=24,
        num_samples=2,
        sampler={"steps": 2},
    )
    done = stack.wait(job["id"])
    assert {artifact["name"] for artifact in done["artifacts"]} == {
        "result.png",
        "sample-1.png",
        "sample-2.png",
        "result.json",
    }
    picture = Image.open(io.BytesIO(stack.artifact(job["id"], "result.png")))
    assert picture.size == (40, 24)
    assert "trainedAlgorithmicMedia" in picture.info["xmp"].decode()


@pytest.mark.parametrize(
    ("task", "spec", "status", "word"),
    [
        ("guide", {"prompt": ""}, 422, "prompt"),
        ("guide", {"prompt": "x", "prior": "embedded"}, 422, "it can use"),
        ("guide", {"prompt": "x", "image": "data:image/png;base64,AA=="}, 422, "image"),
        ("guide", {"prompt": "x", "more_prompts": ["y"] * 16}, 422, "more_prompts"),
        (
            "guide",
            {"prompt": "x", "reward": {"type": "log_likelihood", "model": "nobody"}},
            422,
            "There is no checkpoint 'nobody'",
        ),
        (
            "guide",
            {"prompt": "x", "reward": {"type": "log_likelihood", "model": "qwen3-0.6b"}},
            503,
            "aps weights fetch qwen3-0.6b",
        ),
        ("generate", {"num_samples": 17}, 422, "num_samples"),
    ],
)
def test_unsupported_fields_are_rejected(
    stack: Stack, task: str, spec: dict[str, Any], status: int, word: str
) -> None:
    answer = stack.http.post(f"/v1/{task}", json=spec)
    assert answer.status_code == status
    assert word in answer.text


def test_a_picture_is_rejected_by_a_task_without_pictures(stack: Stack) -> None:
    answer = stack.http.post(
        "/v1/guide", files={"image": png()}, data={"spec": json.dumps({"prompt": "x"})}
    )
    assert answer.status_code == 400
    assert "the file parts are none" in answer.json()["detail"]
