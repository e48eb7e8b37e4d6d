"""Problem documents: the body of every error response."""

from __future__ import annotations

from pydantic import BaseModel, Field


class FieldError(BaseModel):
    """One invalid field."""

    pointer: str = Field(description="JSON pointer into the spec.")
    detail: str = Field(description="What is wrong with the field.")


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = Field(
        description="Stable URI of the kind of problem: urn:aps:problem: and the code."
    )
    title: str = Field(description="Name of the kind of problem.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What is wrong with this request.")
    code: str = Field(description="Stable and machine-readable.")
    retryable: bool = Field(False, description="Whether the same request may succeed later.")
    errors: list[FieldError] = Field(
        [], description="Every invalid field; empty or null if the problem is not about fields."
    )
    request_id: str = Field(
        "", description="X-Request-ID of the request; name it when you ask for help."
    )
