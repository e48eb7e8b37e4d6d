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

from aps_core.runtime.estimate import CPU_MAX_PIXELS, GPU_MAX_PIXELS
from service.limits import Limits


def _state_dir() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser() / "aps"


class Settings(Limits):
    """Frozen, so that one process never sees two answers."""

    model_config = SettingsConfigDict(env_prefix="APS_", frozen=True, extra="ignore")

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", description="redis://, rediss:// or unix:///path.sock."
    )
    key_prefix: str = Field(
        default="aps:", description="Prefix of every key, so that one server can be shared."
    )
    data_dir: Path = Field(
        default_factory=_state_dir,
        description="Where the embedded server keeps its data, socket and log.",
    )
    redis_binary: Path | None = Field(
        default=None, description="Server started by --embedded; searched for when unset."
    )
    artifacts_dir: Path = Field(
        default_factory=lambda: _state_dir() / "artifacts",
        description="Shared by the API and all workers.",
    )
    artifacts_url: str | None = Field(
        default=None,
        description=(
            "Another place for them, by fsspec: 's3://bucket/prefix' (extra 's3'); instead of the"
            " folder."
        ),
    )

    host: str = Field(
        default="127.0.0.1",
        description=(
            "Address the API is bound to, as its server is told; decides whether keys are needed."
        ),
    )
    auth: Literal["auto", "keys", "none"] = Field(
        default="auto",
        description=(
            "API keys: needed unless bound to loopback (auto), always (keys), never (none)."
        ),
    )
    keys_file: Path | None = Field(
        default=None,
        description="JSON list of API keys beside those in Redis; see 'aps keys create --record'.",
    )
    allowed_hosts: list[str] = Field(
        default=[],
        description=(
            "Names in the Host header that are ours; by default loopback's where keys are off, else"
            " any."
        ),
    )

    priors: Annotated[list[str], NoDecode] = Field(
        default=["embedded", "embedded_text"],
        description="Priors the API offers and a worker loads together: 'a,b' or JSON.",
    )
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="What a worker computes on.")
    threads: int | None = Field(
        default=None, ge=1, description="CPU threads of a worker; by default all it may use."
    )

    image_urls: bool = Field(
        default=False,
        description=(
            "Whether 'image' and 'mask' may be https addresses, which the API then fetches."
        ),
    )
    egress_allow: list[IPv4Network | IPv6Network] = Field(
        default=[],
        description=(
            "Networks of our own that may be fetched from, also in plain HTTP, as"
            " '[\"10.1.2.0/24\"]'."
        ),
    )
    scale_to_zero: bool = Field(
        default=False,
        description=(
            "Jobs are accepted while no worker lives, by what the last one could do: somebody"
            " starts workers."
        ),
    )

    lease_seconds: float = Field(
        default=30, gt=0, description="A worker silent for this long loses its job to another."
    )
    heartbeat_seconds: float = Field(
        default=0.25,
        gt=0,
        description="How often a busy worker extends its lease and asks whether to stop.",
    )
    sweep_seconds: float = Field(default=5, gt=0, description="How often lost jobs are looked for.")
    republish_seconds: float = Field(
        default=10,
        gt=0,
        description=(
            "A job waiting this long is announced again, when fewer messages are under way than"
            " jobs wait."
        ),
    )
    stall_seconds: float = Field(
        default=120,
        gt=0,
        description=(
            "An idle worker that hears nothing for this long while jobs wait is ended, to be"
            " started again."
        ),
    )
    storage_seconds: float = Field(
        default=60,
        ge=0,
        description="How long a worker tries to store a result before the job fails.",
    )

    public_url: str = Field(
        default="",
        description=(
            "Where clients reach the API, as in https://aps.example.com; makes links in webhooks"
            " absolute."
        ),
    )
    send_webhooks: bool = Field(
        default=True, description="API processes send webhooks; off where 'aps webhooks' runs."
    )
    webhook_secrets: list[str] = Field(
        default=[],
        repr=False,
        description=(
            "Master secrets, newest first; all sign. By default one is made and kept in Redis."
        ),
    )
    webhook_allow_private: bool = Field(
        default=False, description="Receivers may use http and private addresses; for development."
    )

    metrics_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port of a worker's Prometheus exporter; 0 turns it off.",
    )
    log_level: str = "INFO"
    log_format: Literal["text", "json"] = Field(
        default="text", description="json: one object a line, for log collectors."
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
        """Whether the API is bound where only this machine reaches it."""
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
        """The same server as Celery spells it."""
        return self.redis_url.replace("unix://", "redis+socket://", 1)

    @property
    def broker_transport_options(self) -> dict[str, Any]:
        """What both ends of the queue must agree on, and how connections are kept alive."""
        options: dict[str, Any] = {
            "visibility_timeout": self.visibility_timeout,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "priority_steps": [
                0
            ],  # the store keeps the order of the jobs; a message only says that there is one
            "sep": ":",
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
        """Where the broker keeps the messages that no worker for ``prior`` has taken yet."""
        return f"{self.key_prefix}mq:{queue_name(prior)}"

    @property
    def visibility_timeout(self) -> int:
        """Seconds until the broker delivers a message again. A backstop only: leases recover jobs
        long before.
        """
        return max(3600, self.max_job_seconds + 600)

    @property
    def artifacts(self) -> str:
        """Where files lie: a folder, or a URL."""
        return self.artifacts_url or str(self.artifacts_dir)

    @property
    def area_limit(self) -> int:
        """Largest restored picture of this worker, in pixels."""
        return self.max_pixels or (GPU_MAX_PIXELS if self.device == "cuda" else CPU_MAX_PIXELS)

    @property
    def max_body_bytes(self) -> int:
        """Largest request body: one picture and its mask at most, base64 included."""
        return self.max_upload_bytes * 4 // 3 + 1_000_000

    def environment(self) -> dict[str, str]:
        """This process's environment with these settings in it, for a child process."""
        ours = {
            f"APS_{name.upper()}": value
            for name, value in self.model_dump(mode="json", exclude_none=True).items()
        }
        return {**os.environ, **{name: _spell(value) for name, value in ours.items()}}


def _spell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


RUN_JOB = "aps.run_job"
"""Name of the workers' one task; its only argument is a job's id."""


def queue_name(prior: str) -> str:
    """The Celery queue whose workers hold ``prior``."""
    return f"prior.{prior}"
