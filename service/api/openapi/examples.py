"""Examples of the OpenAPI document: of parameters by name, of schemas by component, of task specs
by task. A test validates each against its schema.
"""

from __future__ import annotations

from typing import Any

JOB_ID = "0199b1c2-7d3e-7a41-9f02-5c8e1d2b3a4f"
_BASE = f"/v1/jobs/{JOB_ID}"
_SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_CREATED = "2026-11-22T09:30:00Z"

PARAMETERS: dict[str, Any] = {
    "job_id": JOB_ID,
    "batch_id": JOB_ID,
    "delivery_id": f"{JOB_ID}-1",
    "name": "result.png",
    "step": 3,
    "limit": 20,
    "cursor": JOB_ID,
    "state": ["running"],
    "task": ["restore"],
    "created_after": _CREATED,
    "created_before": _CREATED,
    "model": "embedded_text",
}
"""Path and query parameters."""

SPECS: dict[str, dict[str, Any]] = {
    "restore": {
        "operator": {"type": "gaussian_blur", "sigma": 1.5},
        "preset": "fast",
        "working_size": 256,
    },
    "edit": {"prompt": "a red flower in a meadow", "right": 64, "working_size": 256},
    "stylize": {"prompt": "a castle on a hill", "width": 128, "height": 128},
    "generate": {"prompt": "a red flower", "num_samples": 2},
    "guide": {"prompt": "What is a lantern?", "sampler": {"max_new_tokens": 32}},
}
"""Specs of the built-in tasks."""

PICTURE = "data:image/png;base64,iVBORw0KGgo="

_JOB = {
    "id": JOB_ID,
    "task": "restore",
    "prior": "embedded",
    "state": "running",
    "phase": "sampling",
    "version": 7,
    "priority": "normal",
    "batch": None,
    "queue_position": None,
    "estimated_seconds": 15.2,
    "progress": {
        "step": 3,
        "total": 10,
        "misfit": 0.061,
        "noise_floor": 0.05,
        "text": None,
        "seconds": 1.5,
        "seconds_left": 10.6,
    },
    "attempt": 1,
    "resumed_from_step": None,
    "cancel_requested": False,
    "deadline": None,
    "created_at": _CREATED,
    "started_at": _CREATED,
    "finished_at": None,
    "expires_at": None,
    "shared_until": None,
    "image_size": [697, 472],
    "output_size": [256, 173],
    "spec": {"type": "restore", **SPECS["restore"]},
    "error": None,
    "artifacts": [
        {
            "name": "measurement.png",
            "role": "input",
            "media_type": "image/png",
            "bytes": 412_345,
            "sha256": _SHA256,
            "url": f"{_BASE}/artifacts/measurement.png",
        }
    ],
    "metrics": {},
    "request_id": "b7f1c0de",
    "traceparent": "",
    "cancel_after_seconds": None,
    "urls": {
        "self": _BASE,
        "events": f"{_BASE}/events",
        "cancel": f"{_BASE}/cancel",
        "share": f"{_BASE}/share",
        "previews": f"{_BASE}/previews/{{step}}",
    },
}

_SHARED = f"/v1/shared/{JOB_ID}"
_TOKEN = "aps_link_" + 43 * "x"

_CHAT = {
    "id": f"chatcmpl-{JOB_ID}",
    "object": "chat.completion",
    "created": 1_795_339_800,
    "model": "embedded_text",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "A kind of lamp.", "refusal": None},
            "finish_reason": "stop",
            "logprobs": None,
            "reward": -3.1,
        }
    ],
    "usage": {"prompt_tokens": 8, "completion_tokens": 5, "total_tokens": 13},
    "job": JOB_ID,
    "mean_reward": -3.4,
}
_MODEL = {"id": "embedded_text", "object": "model", "created": 0, "owned_by": "aps"}

COMPONENTS: dict[str, Any] = {
    "ChatRequest": {
        "model": "embedded_text",
        "messages": [{"role": "user", "content": "What is a lantern?"}],
        "max_tokens": 32,
    },
    "ChatCompletion": _CHAT,
    "Model": _MODEL,
    "ModelList": {"object": "list", "data": [_MODEL]},
    "JobView": _JOB,
    "BatchView": {
        "id": JOB_ID,
        "created_at": _CREATED,
        "finished": False,
        "progress": 0.65,
        "counts": {"running": 1, "refused": 1},
        "pictures": [
            {
                "number": 1,
                "state": "running",
                "job": JOB_ID,
                "progress": _JOB["progress"],
                "error": None,
                "urls": {"job": _BASE},
            },
            {
                "number": 2,
                "state": "refused",
                "job": None,
                "progress": None,
                "error": {
                    "code": "not_an_image",
                    "title": "The picture was refused",
                    "detail": "'image' is not a picture.",
                    "retryable": False,
                },
                "urls": {},
            },
        ],
        "urls": {
            "self": f"/v1/batches/{JOB_ID}",
            "cancel": f"/v1/batches/{JOB_ID}/cancel",
            "results": f"/v1/batches/{JOB_ID}/results.zip",
        },
    },
    "JobPage": {"jobs": [_JOB], "next": None},
    "EstimateView": {
        "prior": "embedded",
        "output_size": [256, 173],
        "reduced_size": [256, 173],
        "tokens": 2816,
        "seconds": 50.4,
        "refusal": None,
        "seconds_by_preset": {"fast": 12.6, "balanced": 50.4, "best": 151.2},
    },
    "Diagnosis": {
        "width": 697,
        "height": 472,
        "summary": "The picture is noisy.",
        "findings": [],
        "unsure": [],
        "proposal": {"operator": {"type": "denoise"}},
    },
    "StoredPicture": {
        "sha256": _SHA256,
        "media_type": "image/png",
        "bytes": 412_345,
        "width": 697,
        "height": 472,
        "has_alpha": False,
        "expires_at": _CREATED,
    },
    "ShareRequest": {"seconds": 3600},
    "LinkView": {
        "url": f"https://aps.example.com/shared.html#{JOB_ID}/{_TOKEN}",
        "expires_at": _CREATED,
    },
    "SharedView": {
        "id": JOB_ID,
        "task": "restore",
        "prior": "embedded",
        "state": "succeeded",
        "created_at": _CREATED,
        "finished_at": _CREATED,
        "expires_at": _CREATED,
        "image_size": [697, 472],
        "output_size": [256, 173],
        "spec": {"type": "restore", **SPECS["restore"]},
        "artifacts": [],
        "metrics": {},
        "urls": {"self": _SHARED, "steps": f"{_SHARED}/steps"},
    },
    "DeliveryView": {
        "id": f"{JOB_ID}-1",
        "type": "job.completed",
        "url": "https://example.com/hook",
        "state": "delivered",
        "created_at": _CREATED,
        "attempts": [],
        "next_attempt_at": None,
    },
    "Secrets": {"secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]},
    "Problem": {
        "type": "urn:aps:problem:invalid_spec",
        "title": "The spec is invalid",
        "status": 422,
        "detail": "/operator/factor: Input should be 2, 4 or 8",
        "code": "invalid_spec",
        "retryable": False,
        "errors": [{"pointer": "/operator/factor", "detail": "Input should be 2, 4 or 8"}],
        "request_id": "b7f1c0de",
    },
}
"""Schemas of bodies."""

INLINE: dict[str, Any] = {
    "get_capabilities": {"version": "0.2.0", "tasks": [], "operators": [], "priors": []},
    "livez": {"status": "ok"},
    "readyz": {
        "status": "ready",
        "priors": [
            "embedded",
            "embedded_denoiser",
            "embedded_photographs",
            "embedded_documents",
            "embedded_text",
        ],
    },
    "list_shared_steps": [{"step": 1, "total": 10, "preview_url": f"{_SHARED}/previews/1"}],
    "list_deliveries": [COMPONENTS["DeliveryView"]],
}
"""JSON answers without a component, by operation."""
