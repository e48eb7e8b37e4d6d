"""The embedded priors for pictures and text: small, trained, and shipped with the package."""

from aps_core.priors.embedded import documents, image, photographs, text

__all__ = ["documents", "image", "photographs", "text"]
