"""Scores of an answer under a causal language model. The paper names its reward model (Qwen3-0.6B),
but not how a score is computed.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from aps_core.registry import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.text.rewards.language_model import RewardModel, SoftAnswer

RUBRIC = (
    "<|im_start|>user\nYou judge answers. An answer is good when it does what was asked, is"
    " correct, fluent and coherent.\n\nRequest: {prompt}\n\nAnswer: {answer}\n\nIs this a good"
    " answer? Reply with Yes or No only.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""Qwen's chat template. The empty <think> block disables Qwen3's thinking."""


class RewardSpec(Spec, family=True):
    """How a score is computed with the reward model."""

    @abstractmethod
    def score(self, model: RewardModel, prompt: str, answer: SoftAnswer) -> Tensor:
        """Reward (B,), higher is better, differentiable with respect to the answer's
        probabilities.
        """


class YesNoReward(RewardSpec):
    """The model's logit of "Yes" minus that of "No" when asked whether the answer is good; for
    models that follow instructions.
    """

    type: Literal["yes_no"] = "yes_no"
    rubric: str = Field(
        RUBRIC,
        max_length=4000,
        description=(
            "What the model reads: {prompt} and {answer} stand in it, the reply would come last."
        ),
    )
    yes: str = Field(
        "Yes",
        min_length=1,
        max_length=20,
        description="The approving reply, one token of the model.",
    )
    no: str = Field(
        "No",
        min_length=1,
        max_length=20,
        description="The disapproving reply, one token of the model.",
    )

    @field_validator("rubric")
    @classmethod
    def _has_places(cls, rubric: str) -> str:
        if (
            rubric.count("{prompt}") > 1
            or rubric.count("{answer}") != 1
            or "{prompt}" in rubric.partition("{answer}")[2]
        ):
            raise ValueError(
                "the rubric must hold {answer} once and {prompt} at most once, before it"
            )
        return rubric

    def score(self, model: RewardModel, prompt: str, answer: SoftAnswer) -> Tensor:
        """Logit of ``yes`` minus logit of ``no`` after the rubric."""
        before, _, after = self.rubric.partition("{answer}")
        logits_BV = model.next_logits(before.replace("{prompt}", prompt), answer, after)
        return logits_BV[:, model.token(self.yes)] - logits_BV[:, model.token(self.no)]


class LogLikelihoodReward(RewardSpec):
    """Mean log-likelihood per token of the answer given the prompt, in nats; for small models that
    follow no instructions.
    """

    type: Literal["log_likelihood"] = "log_likelihood"
    layout: str = Field(
        "<|prompt|>{prompt}<|answer|>",
        max_length=4000,
        description="What stands before the answer.",
    )

    def score(self, model: RewardModel, prompt: str, answer: SoftAnswer) -> Tensor:
        """Mean log-likelihood per token of the answer, in nats."""
        return model.mean_log_likelihood(self.layout.replace("{prompt}", prompt), answer)
