"""Settings shared by samplers that decide tokens by anchored remasking."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from aps_core.samplers.base import SamplerSpec


class AnchoredSampler(SamplerSpec):
    """Keeps the most confident tokens of every reverse step and masks the others again."""

    guidance_scale: float = Field(
        3.5,
        ge=0,
        le=20,
        description=(
            "Classifier-free guidance g of (1+g) cond - g uncond. Only matters with a prompt."
        ),
    )
    remasking: Literal["posterior", "prior", "random"] = Field(
        "posterior",
        description=(
            "What orders the anchors: confidence of the optimised posterior (APS-II), confidence"
            " of the prior (APS-I), or chance (control)."
        ),
    )
    anchor_score: Literal["confidence", "margin", "entropy"] = Field(
        "confidence",
        description=(
            "Confidence of a token: probability of its code (paper), margin to the second code, or"
            " negative entropy."
        ),
    )
    anchor_temperature: float = Field(
        0.0,
        ge=0,
        le=10,
        description=(
            "Gumbel noise on the anchors' score, in standard deviations of the score; 0 is"
            " Algorithm 1. Noise spreads the anchors over the picture."
        ),
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description=(
            "Gumbel noise on the logits each inner optimisation starts from. 0 is Algorithm 1,"
            " which has no randomness; 1 starts from a draw of the prior. Default: 0 for one"
            " sample, 1 for several."
        ),
    )
    state_update: Literal["cosine_topk", "bernoulli"] = Field(
        "cosine_topk",
        description=(
            "Keep the best tokens of the cosine schedule, or keep each anchor with the reverse"
            " process's probability."
        ),
    )
    keeps_decided: ClassVar[bool] = True
