"""``POST /v1/chat/completions`` and ``GET /v1/models``: text jobs in OpenAI's format, for existing
clients. Each request is a job of the task ``guide``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anyio import CancelScope
from fastapi import APIRouter, Request, Response
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from aps_contract import JobView
from aps_core.errors import APSError
from service.access.principals import Principal, Reader, Writer
from service.api.app_state import Services, services_of
from service.api.completions.models import (
    AssistantMessage,
    ChatCompletion,
    ChatRequest,
    Choice,
    Model,
    ModelList,
    Usage,
    text_priors,
)
from service.api.events.hub import EventHub, until_over
from service.api.events.streams import CountedEventSource
from service.api.jobs.accept import Submission, accept
from service.api.jobs.body import MAX_SPEC_BYTES, json_object
from service.api.jobs.submit import IdempotencyKey, TraceParent
from service.api.openapi import fragments
from service.api.problems.errors import BodyTooLarge, JobFailed, NotFound, UnsupportedBody
from service.api.requests.headers import idempotency_key as checked_key
from service.api.requests.headers import trace_parent

router = APIRouter(prefix="/v1", tags=["chat"])

LOOK_SECONDS = 5.0
"""Interval at which a waiting request checks that its client is still connected."""


@router.get("/models", responses=fragments.problems(401, 403))
def list_models(request: Request, who: Reader) -> ModelList:
    """Text priors, in OpenAI's format."""
    return ModelList(data=text_priors(services_of(request).settings.priors))


@router.get("/models/{model}", responses=fragments.problems(401, 403, 404))
def get_model(request: Request, who: Reader, model: str) -> Model:
    """One text prior, in OpenAI's format."""
    for known in text_priors(services_of(request).settings.priors):
        if known.id == model:
            return known
    raise NotFound(f"There is no text prior '{model[:80]}' here; GET /v1/models lists them.")


@router.post(
    "/chat/completions",
    response_model=ChatCompletion,
    operation_id="chat_completions",
    responses={
        200: {
            "description": "The answer or, with 'stream', its parts as server-sent events.",
            "content": {"text/event-stream": {}},
        },
        **fragments.problems(400, 401, 403, 409, 410, 413, 415, 422, 429, 500, 503),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": fragments.COMPONENT.format(model=ChatRequest.__name__)}
                }
            },
        }
    },
)
async def create_completion(
    request: Request,
    who: Writer,
    idempotency_key: IdempotencyKey = None,
    traceparent: TraceParent = None,
) -> Response:
    """Answers a chat with a text prior, in OpenAI's format.

    A streamed answer is sent as far as its beginning is decided, because this kind of model decides
    tokens in any order. With ``num_samples`` above ``n``, it is sent when the best answers are
    known.
    """
    services, asked = services_of(request), await _read(request)
    submission = Submission(
        "guide",
        asked.guide_spec(),
        {},
        tenant=who.name,
        quota=who.quota,
        request_id=request.state.request_id,
        traceparent=trace_parent(traceparent),
        idempotency_key=checked_key(idempotency_key),
    )
    job, _ = await accept(services, submission)
    answering = _Answering(
        services=services, hub=request.app.state.events, asked=asked, job=job, who=who
    )
    if asked.stream:
        return CountedEventSource(answering.stream(), request.app.state.streams, who.name)
    with request.app.state.streams.opened(who.name):
        completion = await answering.wait(request)
    return Response(completion.model_dump_json(), media_type="application/json")


async def _read(request: Request) -> ChatRequest:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UnsupportedBody(f"Content type {kind!r} is not accepted; send application/json.")
    body = await request.body()
    if len(body) > MAX_SPEC_BYTES:
        raise BodyTooLarge(f"The body has more than {MAX_SPEC_BYTES} bytes.")
    return ChatRequest.model_validate(json_object(body))


@dataclass
class _Answering:
    """One request and its job."""

    services: Services
    hub: EventHub
    asked: ChatRequest
    job: JobView
    who: Principal
    sent: dict[int, str] = field(default_factory=dict)
    """Text sent of each choice."""

    @property
    def id(self) -> str:
        """Id of the completion."""
        return f"chatcmpl-{self.job.id}"

    @property
    def created(self) -> int:
        """Time of submission, in seconds since 1970."""
        return int(self.job.created_at.timestamp()) if self.job.created_at else 0

    async def wait(self, request: Request) -> ChatCompletion:
        """The completion of a finished job. Cancels the job if the client disconnects."""
        while True:
            await until_over(self.hub, self.job.id, LOOK_SECONDS)
            if (job := await self._latest()).state.terminal:
                return await self._completion(job)
            if await request.is_disconnected():
                await run_in_threadpool(self.services.store.cancel, self.job.id)

    async def stream(self) -> AsyncIterator[bytes]:
        """Chunks of the answers. Cancels the job if the client disconnects."""
        over = False
        try:
            for index in range(self.asked.n):
                yield self._chunk(index, {"role": "assistant", "content": ""})
            async for frame in self.hub.follow(self.job.id, "0-0"):
                for index, text in self._settled(frame.kind, frame.content):
                    yield self._chunk(index, {"content": text})
            async for last in self._end():
                yield last
            over = True
        finally:
            if not over:
                with CancelScope(shield=True):
                    await run_in_threadpool(self.services.store.cancel, self.job.id)

    def _settled(self, kind: str, event: Mapping[str, Any]) -> list[tuple[int, str]]:
        """New text of every choice. Without one row per choice the best rows are not known yet."""
        if kind != "progress" or self.asked.samples > self.asked.n:
            return []
        fresh = []
        for index, row in enumerate(event.get("rows", [])):
            before = self.sent.get(index, "")
            if len(row["settled"]) > len(before):
                self.sent[index] = row["settled"]
                fresh.append((index, row["settled"][len(before) :]))
        return fresh

    async def _end(self) -> AsyncIterator[bytes]:
        """The rest of every answer, the reasons why they ended, and the token counts."""
        try:
            job = await self._latest()
            # streamed rows keep their order, as their beginnings have been sent
            completion = await self._completion(job, ranked=self.asked.samples > self.asked.n)
        except APSError as error:
            yield _event({"error": {"message": str(error), "type": error.code, "code": error.code}})
            return
        for choice in completion.choices:
            if rest := choice.message.content[len(self.sent.get(choice.index, "")) :]:
                yield self._chunk(choice.index, {"content": rest})
            yield self._chunk(choice.index, {}, choice.finish_reason, reward=choice.reward)
        if self.asked.stream_options is not None and self.asked.stream_options.include_usage:
            yield _event({**self._head(), "choices": [], "usage": completion.usage.model_dump()})
        yield ServerSentEvent(data="[DONE]").encode()

    async def _latest(self) -> JobView:
        return await run_in_threadpool(self.services.shown, self.job.id, self.who.name)

    async def _completion(self, job: JobView, ranked: bool = True) -> ChatCompletion:
        """The completion of a job from its sidecar.

        Raises:
            JobFailed: the job has no result.
        """
        if job.state != "succeeded":
            reason = job.error.detail if job.error else f"It is {job.state}."
            raise JobFailed(f"The job '{job.id}' has no answer. {reason}")
        sidecar = json.loads(await run_in_threadpool(self._sidecar))
        answers = sidecar["answers"] or [sidecar["answer"]]
        if ranked:
            answers = sorted(answers, key=lambda answer: -answer["reward"])
        chosen = answers[: self.asked.n]
        prompt, written = sidecar["prompt_tokens"], sum(answer["tokens"] for answer in chosen)
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.job.prior,
            choices=[
                Choice(
                    index=index,
                    message=AssistantMessage(content=answer["text"]),
                    finish_reason=answer["finish_reason"],
                    reward=answer["reward"],
                )
                for index, answer in enumerate(chosen)
            ],
            usage=Usage(
                prompt_tokens=prompt, completion_tokens=written, total_tokens=prompt + written
            ),
            job=job.id,
            mean_reward=sidecar["mean_reward"],
        )

    def _sidecar(self) -> bytes:
        record = self.services.job(self.job.id, self.who.name)
        file = next(file for file in record.artifacts if file.name == "result.json")
        return self.services.artifacts.get(record.id, file.file)

    def _head(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.job.prior,
        }

    def _chunk(
        self, index: int, delta: Mapping[str, str], reason: str | None = None, **more: Any
    ) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": reason, **more}
        return _event({**self._head(), "choices": [choice]})


def _event(data: Mapping[str, Any]) -> bytes:
    return ServerSentEvent(data=json.dumps(data)).encode()
