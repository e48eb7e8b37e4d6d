"""The embedded priors for pictures and text: small, trained, and shipped with the package."""

from aps_core.priors.embedded import denoiser, documents, image, photographs, text

__all__ = ["denoiser", "documents", "image", "photographs", "text"]
