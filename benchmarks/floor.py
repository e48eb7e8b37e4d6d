"""Minimal job submission, as a baseline: parse JSON, write a Redis hash, send a Celery message."""

from __future__ import annotations

import uuid
from typing import Any

from celery import Celery
from fastapi import FastAPI
from redis import Redis

from service.settings import Settings

settings = Settings()
redis = Redis.from_url(settings.redis_url)
queue = Celery("floor", broker=settings.broker_url, set_as_current=False)
queue.conf.update(
    task_ignore_result=True, broker_transport_options=settings.broker_transport_options
)
app = FastAPI()


@app.post("/floor", status_code=202)
def submit(body: dict[str, Any]) -> dict[str, str]:
    job_id = str(uuid.uuid4())
    redis.hset(f"floor:{job_id}", mapping={"state": "queued", "task": str(body.get("type"))})
    queue.send_task("floor", args=[job_id], queue="floor")
    return {"id": job_id}
