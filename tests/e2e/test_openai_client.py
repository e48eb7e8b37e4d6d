"""The OpenAI client library talks to the running service; it knows nothing of this project."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.stack import Stack

MODEL = "embedded_text"
ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is a lantern?"}],
    "max_tokens": 8,
    "seed": 3,
}


@pytest.fixture
def client(stack: Stack) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{stack.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def job_of(stack: Stack, completion: Any) -> dict[str, Any]:
    """Result of the job behind a completion."""
    found: dict[str, Any] = json.loads(stack.artifact(completion.job, "result.json"))
    return found


def test_models_are_the_text_priors(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match="no text prior 'embedded'"):
        client.models.retrieve("embedded")


def test_a_chat_is_answered(stack: Stack, client: OpenAI) -> None:
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is oak?"}]},
    ]
    completion = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        max_completion_tokens=8,
        temperature=0.7,
        top_p=0.9,
        user="me",
    )
    result = job_of(stack, completion)
    assert completion.object == "chat.completion"
    (choice,) = completion.choices
    assert choice.message.content == result["answer"]["text"]
    assert choice.finish_reason in ("stop", "length")
    usage = completion.usage
    assert usage is not None
    assert usage.completion_tokens == result["answer"]["tokens"] <= 8
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    asked = result["spec"]
    assert [turn["role"] for turn in asked["prompt"]] == ["system", "user"]
    sampler = asked["sampler"]
    given = (sampler["max_new_tokens"], sampler["temperature"], sampler["top_p"], sampler["steps"])
    assert given == (8, 0.7, 0.9, 8)


def test_null_fields_count_as_left_out(client: OpenAI) -> None:
    nulls = dict.fromkeys(("tools", "tool_choice", "n", "stop", "logprobs", "response_format"))
    messages = [{**ASKED["messages"][0], "name": None, "tool_calls": None}]
    plain = client.chat.completions.create(**ASKED)
    for more in ({**nulls, "messages": messages}, {"tools": []}):
        completion = client.chat.completions.create(**ASKED, extra_body=more)
        assert completion.choices[0].message.content == plain.choices[0].message.content


def test_a_streamed_answer_is_the_same(client: OpenAI) -> None:
    whole = client.chat.completions.create(**ASKED, n=2)
    texts, ends, moments = ["", ""], [None, None], []
    stream = client.chat.completions.create(
        **ASKED, n=2, stream=True, stream_options={"include_usage": True}
    )
    usage = None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            if choice.delta.content:
                texts[choice.index] += choice.delta.content
                moments.append(time.monotonic())
            ends[choice.index] = choice.finish_reason or ends[choice.index]
    assert sorted(texts) == sorted(choice.message.content for choice in whole.choices)
    assert sorted(map(str, ends)) == sorted(choice.finish_reason for choice in whole.choices)
    assert len(moments) > 2, "text arrives in parts"
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_the_best_answers_come_first(stack: Stack, client: OpenAI) -> None:
    more = {"num_samples": 3, "sampler": {"relaxation": {"type": "entrgi"}}}
    completion: Any = client.chat.completions.create(**ASKED, n=2, extra_body=more)
    result = job_of(stack, completion)
    ranked = sorted(result["answers"], key=lambda answer: -answer["reward"])
    assert len(ranked) == 3
    assert [choice.reward for choice in completion.choices] == [a["reward"] for a in ranked[:2]]
    assert completion.choices[0].message.content == result["answer"]["text"]
    assert completion.mean_reward == result["mean_reward"]
    assert result["spec"]["sampler"]["relaxation"]["type"] == "entrgi"
    stream = client.chat.completions.create(**ASKED, stream=True, extra_body=more)
    text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
    assert text == result["answer"]["text"]


def test_a_stop_text_ends_the_answer(client: OpenAI) -> None:
    whole = client.chat.completions.create(**ASKED).choices[0].message.content or ""
    word = whole.split()[1]
    cut = client.chat.completions.create(**ASKED, stop=word).choices[0]
    assert cut.message.content == whole[: whole.index(word)].rstrip()
    assert cut.finish_reason == "stop"


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"model": "gpt-9"}, openai.UnprocessableEntityError, "text prior; known: [^ ]*, .*_text"),
        ({"model": "embedded"}, openai.UnprocessableEntityError, "There is no such text prior"),
        ({"messages": []}, openai.UnprocessableEntityError, "messages"),
        ({"temperature": 3}, openai.UnprocessableEntityError, "temperature"),
        ({"presence_penalty": 1}, openai.UnprocessableEntityError, "presence_penalty"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            openai.UnprocessableEntityError,
            "tools",
        ),
        (
            {"messages": [{"role": "user", "content": "why? " * 300}]},
            openai.UnprocessableEntityError,
            "reads at most 77",
        ),
    ],
)
def test_requests_it_cannot_honour_are_refused(
    client: OpenAI, changed: dict[str, Any], error: type[openai.APIStatusError], words: str
) -> None:
    with pytest.raises(error, match=words) as refused:
        client.chat.completions.create(**{**ASKED, **changed})
    body: Any = refused.value.body
    assert body["code"] == "invalid_spec"
    assert body["message"]


def test_closing_a_stream_cancels_its_job(stack: Stack, client: OpenAI) -> None:
    long = {**ASKED, "max_tokens": 64, "extra_body": {"sampler": {"steps": 64, "inner_steps": 30}}}
    stream = client.chat.completions.create(**long, stream=True)
    first = next(iter(stream))
    stream.close()
    assert stack.wait(first.id.removeprefix("chatcmpl-"))["state"] == "canceled"
