"""Settings of the anchored posterior sampler (Algorithm 1), and of the prior alone.

Defaults are the paper's (appendix "Implementation Details") wherever it states them. A prior may
recommend other values for itself (a small prior on a CPU needs fewer inner steps): a recommendation
fills only the fields the caller left out, and the settings used are echoed in the result.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from aps_core.checkpoints import checkpoint_cache


class APSConfig(BaseModel):
    """Reverse steps, inner optimisation and remasking."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(15, ge=1, le=128, description="Reverse steps T.")
    inner_steps: int = Field(
        100,
        ge=0,
        le=5000,
        description=(
            "Adam steps M on the logits in every reverse step; 0 samples the prior's expectation"
            " alone."
        ),
    )
    learning_rate: float = Field(
        1.0, gt=0, le=20, description="Adam's learning rate on the logits, in nats a step."
    )
    guidance_scale: float = Field(
        3.5,
        ge=0,
        le=20,
        description=(
            "Classifier-free guidance g of (1+g) cond - g uncond. Only matters with a prompt."
        ),
    )
    inner: Literal["fixed", "adaptive"] = Field(
        "fixed",
        description=(
            "'fixed' runs all inner steps; 'adaptive' stops a step early on a plateau or at the"
            " noise floor."
        ),
    )
    norm: Literal["l1", "l2"] = Field(
        "l1", description="Norm of the data term; the paper chooses L1 for sharpness."
    )
    perceptual_weight: float = Field(
        1e-3, ge=0, le=10, description="Weight of the perceptual term, per pixel of the data term."
    )
    perceptual: Literal["tokenizer", "vgg16", "auto"] = Field(
        "tokenizer",
        description=(
            "Features of the perceptual term: the prior's own image encoder, or VGG16 (the"
            " paper's), whose weights must be installed. 'auto' is VGG16 where it is installed,"
            " else the encoder; the result says which."
        ),
    )
    prior_weight: float = Field(
        0.0,
        ge=0,
        le=10,
        description="Weight of the prior term of Eq. (qe), which Algorithm 1 leaves out (0).",
    )
    entropy_weight: float = Field(
        0.0, ge=0, le=10, description="Weight of the entropy of the optimised token distributions."
    )
    remasking: Literal["posterior", "prior", "random"] = Field(
        "posterior",
        description=(
            "Whose confidence orders the anchors: the optimised posterior (APS-II), the prior"
            " (APS-I), or chance (control)."
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
            " which draws nothing at random; 1 starts from a draw of the prior. Left out: 0 for one"
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

    @property
    def lacks_vgg16(self) -> str | None:
        """Where the perceptual term wants VGG16 and 'auto' has to do without: why, and what to do;
        None otherwise.
        """
        if not self.perceptual_weight or self.perceptual != "auto":
            return None
        return checkpoint_cache.missing(("vgg16",))

    def settled(self) -> APSConfig:
        """These settings with 'auto' replaced by what is installed on this machine."""
        if self.perceptual != "auto":
            return self
        kind = "tokenizer" if checkpoint_cache.missing(("vgg16",)) else "vgg16"
        return self.model_copy(update={"perceptual": kind})

    def with_recommended(self, recommended: dict[str, Any]) -> APSConfig:
        """These settings, with a prior's recommendation in the fields that were not set
        explicitly.
        """
        return APSConfig(**{**recommended, **self.model_dump(include=self.model_fields_set)})


class PriorConfig(BaseModel):
    """Sampling the prior alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(15, ge=1, le=128, description="Reverse steps T.")
    guidance_scale: float = Field(
        3.5,
        ge=0,
        le=20,
        description=(
            "Classifier-free guidance g of (1+g) cond - g uncond. Only matters with a prompt."
        ),
    )
    order_temperature: float | None = Field(
        None,
        ge=0,
        le=1000,
        description=(
            "Noise on the choice of tokens to keep; more makes their order more random. 0 also"
            " takes the likeliest code of every token, so that nothing is drawn at random. Left"
            " out: the prior's own, which is 1 for MMaDA."
        ),
    )

    def with_recommended(self, recommended: dict[str, Any]) -> PriorConfig:
        """These settings, with a prior's recommendation in the fields that were not set
        explicitly.
        """
        return PriorConfig(**{**recommended, **self.model_dump(include=self.model_fields_set)})
