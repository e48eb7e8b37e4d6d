"""Serves the page and proxies ``/v1`` to the service.

Page and API thus have the same origin, and the API key stays on the server.

    aps serve --embedded
    APS_SERVER=http://127.0.0.1:8000 APS_API_KEY=... python examples/browser/server.py 9000
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

SERVER = os.environ.get("APS_SERVER", "http://127.0.0.1:8000")
KEY = os.environ.get("APS_API_KEY")
FORWARDED = ("content-type", "accept", "idempotency-key", "last-event-id", "if-none-match", "range")
RETURNED = ("content-type", "etag", "retry-after", "cache-control", "content-range", "location")


async def page(_: Request) -> Response:
    return FileResponse(Path(__file__).parent / "index.html")


async def api(request: Request) -> Response:
    """Forwards a request and streams the response. In production, authorise the user here."""
    headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
    if KEY:
        headers["Authorization"] = f"Bearer {KEY}"
    client: httpx.AsyncClient = request.app.state.client
    sent = client.build_request(
        request.method, request.url.path, content=await request.body(), headers=headers
    )
    answer = await client.send(sent, stream=True)
    back = {name: answer.headers[name] for name in RETURNED if name in answer.headers}
    return StreamingResponse(
        answer.aiter_bytes(), answer.status_code, back, background=BackgroundTask(answer.aclose)
    )


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with httpx.AsyncClient(base_url=SERVER, timeout=httpx.Timeout(30, read=60)) as client:
        app.state.client = client
        yield


app = Starlette(
    routes=[Route("/", page), Route("/v1/{path:path}", api, methods=["GET", "POST", "DELETE"])],
    lifespan=lifespan,
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
