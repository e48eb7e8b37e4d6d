"""Pictures stored for later jobs."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class StoredPicture(BaseModel):
    """A stored picture that jobs may refer to as ``sha256:`` and its hash."""

    sha256: str = Field(
        description=(
            "Hash of the stored PNG, not of the uploaded file: pictures are always re-encoded."
        )
    )
    media_type: str = Field(description="MIME type of the stored file.")
    bytes: int = Field(description="Size of the stored file in bytes.")
    width: int = Field(description="Width in pixels.")
    height: int = Field(description="Height in pixels.")
    has_alpha: bool = Field(description="Whether it has transparency.")
    expires_at: datetime = Field(description="When it is deleted, unless it is stored again.")
