"""Settings of text sampling: Dream's, and those of anchored posterior sampling.

Defaults are the paper's for question answering (appendix, section "Question Answering"). The
``entropy`` order is recommended by Dream's release.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from aps_core.registry import AnyOf, Config
from aps_core.text.relaxations import RelaxationSpec, StraightThrough


class TextConfig(Config):
    """Reverse steps, token filtering, order of unmasking, and the tilt towards a reward."""

    max_new_tokens: int = Field(
        128, ge=1, le=2048, description="Maximum length of the answer in tokens."
    )
    steps: int = Field(
        128,
        ge=1,
        le=2048,
        description="Rounds in which tokens are decided, a share in each (reverse steps T).",
    )
    temperature: float = Field(
        0.2,
        ge=0,
        le=5,
        description="Randomness of the words (divides the logits); 0 takes the likeliest.",
    )
    top_p: float | None = Field(
        0.95,
        gt=0,
        le=1,
        description="Draw from the smallest set of tokens with this much probability.",
    )
    top_k: int | None = Field(
        50,
        ge=1,
        le=1_000_000,
        description=(
            "Draw from this many most likely tokens; null for no limit. 50 is the effective"
            " default of Dream's release: its generation defaults come from the model's"
            " configuration object."
        ),
    )
    alg: Literal["entropy", "maskgit_plus", "topk_margin", "anchor", "origin"] = Field(
        "entropy",
        description=(
            "Which tokens are kept first: least entropy, most probable, largest margin to the"
            " second, largest guided logit ('anchor'), or at random ('origin')."
        ),
    )
    confidence: Literal["filtered", "initial", "guided"] = Field(
        "filtered",
        description=(
            "Distribution from which entropy, probability and margin are computed: the one tokens"
            " are drawn from, after guidance, top-p and top-k (Dream's release); the prior's own,"
            " so that guidance does not change the order ('initial'); or the guided one before"
            " top-p and top-k."
        ),
    )
    end_last: bool = Field(
        False,
        description=(
            "Keep a drawn end-of-text token only when no other token is left to keep. No effect"
            " on random order."
        ),
    )
    alg_temp: float | None = Field(
        0.0,
        ge=0,
        le=1000,
        description="Randomness of the order: above 0, tokens to keep are drawn, not ranked.",
    )
    eps: float = Field(1e-3, gt=0, lt=1, description="Time at which the masking schedule ends.")
    block_length: int | None = Field(
        None,
        ge=1,
        le=2048,
        description=(
            "Decode the answer from left to right in blocks of this many tokens, each with an equal"
            " share of the reverse steps; null decides tokens anywhere, as Dream does."
        ),
    )
    reuse: Literal["none", "prefix", "dual"] = Field(
        "none",
        description=(
            "Approximation: reuse the prior's keys and values within a block, those before the"
            " block ('prefix') or also those after it ('dual'). The result states the error."
        ),
    )
    refreshes: int = Field(
        2,
        ge=1,
        le=2048,
        description=(
            "With 'reuse', how often per block all keys and values are computed. Every time after"
            " the first measures the error; 1 leaves it unknown."
        ),
    )
    inner_steps: int = Field(
        3,
        ge=0,
        le=100,
        description=(
            "Corrections towards the reward in every round (Adam steps M on the logits of the"
            " undecided tokens); 0 leaves the prior alone."
        ),
    )
    learning_rate: float = Field(
        0.1,
        gt=0,
        le=10,
        description="Size of a correction (Adam's learning rate on the logits, in nats per step).",
    )
    relaxation: Annotated[RelaxationSpec, AnyOf(RelaxationSpec, default="aps")] = Field(
        default_factory=StraightThrough,
        description=(
            "What the reward model reads at undecided positions ('aps' if no type is given)."
        ),
    )
