"""Every setting of the API and the workers, read from ``APS_*`` environment variables."""

from __future__ import annotations

import ipaddress
import json
import os
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from aps_core.tasks.estimate import CPU_MAX_PIXELS, GPU_MAX_PIXELS
from service.limits import Limits


def _state_dir() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser() / "aps"


class Settings(Limits):
    """All settings of a process; frozen, so that they cannot change while it runs."""

    model_config = SettingsConfigDict(env_prefix="APS_", frozen=True, extra="ignore")

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", description="redis://, rediss:// or unix:///path.sock."
    )
    key_prefix: str = Field(
        default="aps:",
        description="Prefix of every Redis key, so that services can share a server.",
    )
    data_dir: Path = Field(
        default_factory=_state_dir,
        description="Folder for the embedded server's data, socket and log.",
    )
    redis_binary: Path | None = Field(
        default=None,
        description="Server program started by --embedded; by default found on PATH.",
    )
    artifacts_dir: Path = Field(
        default_factory=lambda: _state_dir() / "artifacts",
        description="Folder for job files, shared by the API and all workers.",
    )
    artifacts_url: str | None = Field(
        default=None,
        description=(
            "fsspec URL for job files instead of the folder: 's3://bucket/prefix' (needs the extra"
            " 's3')."
        ),
    )

    host: str = Field(
        default="127.0.0.1",
        description=(
            "Address the API is bound to. Must match the web server's; decides whether API keys"
            " are required."
        ),
    )
    auth: Literal["auto", "keys", "none"] = Field(
        default="auto",
        description=(
            "When API keys are required: unless bound to loopback (auto), always (keys), never"
            " (none)."
        ),
    )
    keys_file: Path | None = Field(
        default=None,
        description=(
            "File of API keys in addition to Redis: records of 'aps keys create --record', one a"
            " line or as a JSON list."
        ),
    )
    allowed_hosts: list[str] = Field(
        default=[],
        description=(
            "Host names accepted in the Host header; by default loopback names where keys are off,"
            " otherwise any."
        ),
    )

    priors: Annotated[list[str], NoDecode] = Field(
        default=[
            "embedded",
            "embedded_denoiser",
            "embedded_photographs",
            "embedded_documents",
            "embedded_text",
        ],
        description="Priors offered by the API, and all loaded by each worker: 'a,b' or JSON.",
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="Device a worker computes on."
    )
    threads: int | None = Field(
        default=None, ge=1, description="CPU threads of a worker; by default all available."
    )

    image_urls: bool = Field(
        default=False,
        description=("Whether 'image' and 'mask' may be https URLs, which the API then fetches."),
    )
    egress_allow: list[IPv4Network | IPv6Network] = Field(
        default=[],
        description=(
            "Private networks from which pictures may be fetched, also over plain HTTP, as"
            " '[\"10.1.2.0/24\"]'."
        ),
    )
    scale_to_zero: bool = Field(
        default=False,
        description=(
            "Accept jobs while no worker is running, based on the last known workers; an"
            " autoscaler must start workers."
        ),
    )

    lease_seconds: float = Field(
        default=30,
        gt=0,
        description="A worker that does not renew its lease for this long loses its job.",
    )
    heartbeat_seconds: float = Field(
        default=0.25,
        gt=0,
        description="How often a busy worker renews its lease and checks for cancellation.",
    )
    sweep_seconds: float = Field(
        default=5, gt=0, description="How often the sweeper searches for lost jobs."
    )
    republish_seconds: float = Field(
        default=10,
        gt=0,
        description=(
            "The message of a job queued for this long is republished if the broker holds fewer"
            " messages than jobs are queued."
        ),
    )
    stall_seconds: float = Field(
        default=120,
        gt=0,
        description=(
            "An idle worker that receives no message for this long while jobs are queued exits,"
            " to be restarted."
        ),
    )
    storage_seconds: float = Field(
        default=60,
        ge=0,
        description="How long a worker retries storing a result before the job fails.",
    )

    public_url: str = Field(
        default="",
        description=(
            "Public base URL of the API, such as https://aps.example.com; makes links in webhooks"
            " absolute."
        ),
    )
    send_webhooks: bool = Field(
        default=True,
        description="API processes send webhooks; turn off if 'aps webhooks' runs separately.",
    )
    webhook_secrets: list[str] = Field(
        default=[],
        repr=False,
        description=(
            "Master secrets, newest first; every message is signed with all of them. By default"
            " one is generated and stored in Redis."
        ),
    )
    webhook_allow_private: bool = Field(
        default=False,
        description="Allow webhook receivers on http and private addresses; for development.",
    )

    metrics_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port of a worker's Prometheus exporter; 0 disables it.",
    )
    log_level: str = "INFO"
    log_format: Literal["text", "json"] = Field(
        default="text", description="json: one object per line, for log collectors."
    )

    @field_validator("priors", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """``a,b`` or a JSON list."""
        if not isinstance(value, str):
            return value
        return (
            json.loads(value)
            if value.lstrip().startswith("[")
            else [name.strip() for name in value.split(",") if name.strip()]
        )

    @property
    def on_loopback(self) -> bool:
        """Whether the API is bound to a loopback address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def auth_required(self) -> bool:
        """Whether requests need an API key."""
        return self.auth == "keys" or (self.auth == "auto" and not self.on_loopback)

    @property
    def broker_url(self) -> str:
        """``redis_url`` in the form Celery expects."""
        return self.redis_url.replace("unix://", "redis+socket://", 1)

    @property
    def broker_transport_options(self) -> dict[str, Any]:
        """Celery transport options, identical for publishers and consumers."""
        options: dict[str, Any] = {
            "visibility_timeout": self.visibility_timeout,
            "unacked_restore_interval": 5,  # seconds between two searches for such messages
            "unacked_restore_throttle": 1,  # search each time, not every tenth time
            # the store keeps the order of the jobs; a message only says that there is one
            "priority_steps": [0],
            "sep": ":",
            # a connection that has stalled is found within seconds and opened again
            "health_check_interval": 10,
            "socket_connect_timeout": 5,
            "retry_on_timeout": True,
            "global_keyprefix": f"{self.key_prefix}mq:",  # see message_list
            "client_name": "aps",
        }
        if not self.redis_url.startswith("unix://"):  # a unix socket has no TCP keepalive
            options["socket_keepalive"] = True
        return options

    def message_list(self, prior: str) -> str:
        """Redis list of the messages that no worker of ``prior`` has received yet."""
        return f"{self.key_prefix}mq:{queue_name(prior)}"

    @property
    def visibility_timeout(self) -> int:
        """Seconds until the broker redelivers an unacknowledged message. Only a fallback: expired
        leases recover jobs much earlier.
        """
        return max(3600, self.max_job_seconds + 600)

    @property
    def artifacts(self) -> str:
        """Location of job files: a folder or a URL."""
        return self.artifacts_url or str(self.artifacts_dir)

    @property
    def area_limit(self) -> int:
        """Largest restored picture this worker accepts, in pixels."""
        return self.max_pixels or (GPU_MAX_PIXELS if self.device == "cuda" else CPU_MAX_PIXELS)

    @property
    def max_body_bytes(self) -> int:
        """Largest request body, in bytes: one largest picture in base64, plus 1 MB for the rest."""
        return self.max_upload_bytes * 4 // 3 + 1_000_000

    def environment(self) -> dict[str, str]:
        """This process's environment plus these settings, for a child process."""
        ours = {
            f"APS_{name.upper()}": value
            for name, value in self.model_dump(mode="json", exclude_none=True).items()
        }
        return {**os.environ, **{name: _spell(value) for name, value in ours.items()}}


def _spell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


RUN_JOB = "aps.run_job"
"""Name of the workers' only Celery task; its argument is a job's id."""


def queue_name(prior: str) -> str:
    """The Celery queue of the workers that hold ``prior``."""
    return f"prior.{prior}"
