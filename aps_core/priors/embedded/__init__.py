"""The embedded priors for pictures and text: small, trained, and shipped with the package."""

from aps_core.priors.embedded import image, text

__all__ = ["image", "text"]
