"""What to compute: the tasks a user can ask for, as specs, and the one function that runs them.

Specs need no torch; the HTTP front end validates jobs with exactly these classes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from aps_core import operators
from aps_core.config import APSConfig
from aps_core.operators import OperatorSpec
from aps_core.registry import Spec, any_of

assert operators  # importing the package registers every operator

Sigma = Annotated[float, Field(ge=0, le=1)] | Literal["auto"]


class TaskSpec(Spec, family=True):
    """One job's worth of work."""

    prior: str = Field("embedded", min_length=1, max_length=64, description="Which prior to sample from.")
    prompt: str = Field("", max_length=500, description="Text describing the picture; may stay empty.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of every random draw; the same seed gives the same picture.")
    sampler: APSConfig = Field(default_factory=APSConfig, description="Sampler settings; fields left out follow the prior's recommendation.")


class RestoreSpec(TaskSpec):
    """Restore a degraded picture: find a plausible picture whose measurement agrees with the upload."""

    type: Literal["restore"] = "restore"
    operator: any_of(OperatorSpec) = Field(description="How the picture was degraded.")  # type: ignore[valid-type]
    sigma: Sigma = Field("auto", description="Noise standard deviation on the [-1, 1] scale (0.05 is 6.4 grey levels), or 'auto' to estimate it.")
    num_samples: int = Field(1, ge=1, le=16, description="Posterior samples to draw.")
    working_size: int | None = Field(None, ge=32, le=4096, description="Reduce the upload so that the restored picture's longer side is at most this many pixels.")


def validate_spec(data: dict[str, Any]) -> TaskSpec:
    """Validates a spec of any registered task by its ``type``."""
    name = data.get("type", "restore")
    return TaskSpec.family[name].model_validate(data)
