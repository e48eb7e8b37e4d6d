"""How an answer's score is computed from a reward model: a family. Specs need no torch.

The paper names its reward model (Qwen3-0.6B) and not how a score is computed. The authors' later
code reads a published reward model: ``sequence_classifier``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from aps_core.registry import Spec
from aps_core.text.chat import Chat, transcript

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.text.rewards.alignment import SoftAnswer
    from aps_core.text.rewards.classifier import ClassifierReward
    from aps_core.text.rewards.language_model import LanguageModelReward
    from aps_core.text.rewards.network import Kind

RUBRIC = (
    "<|im_start|>user\nYou judge answers. An answer is good when it does what was asked, is"
    " correct, fluent and coherent.\n\nRequest: {prompt}\n\nAnswer: {answer}\n\nIs this a good"
    " answer? Reply with Yes or No only.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""Qwen's chat template. The empty <think> block disables Qwen3's thinking."""


class RewardSpec(Spec, family=True):
    """How a score is computed, and with which model."""

    kind: ClassVar[Kind]
    """Kind of model it reads."""
    model: str | None = Field(
        None,
        max_length=64,
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description=(
            "Checkpoint of the reward model, such as skywork-reward-v2-qwen3-0.6b, or a folder of"
            " APS_WEIGHTS_DIR. Default: the prior's own."
        ),
    )

    @abstractmethod
    def score(self, model: Any, chat: Chat, answer: SoftAnswer) -> Tensor:
        """Reward (B,), higher is better, differentiable with respect to the answer's
        probabilities. ``model`` is of this spec's kind.
        """

    def final(self, model: Any, chat: Chat, answer: SoftAnswer, texts: Sequence[str]) -> Tensor:
        """Reward (B,) of finished answers, given in the reward model's tokens and as text."""
        return self.score(model, chat, answer)


class SequenceClassifierReward(RewardSpec):
    """The output of a published reward model, a sequence classifier, for prompt and answer in its
    chat template.
    """

    kind: ClassVar[Kind] = "classifier"
    type: Literal["sequence_classifier"] = "sequence_classifier"
    label: int = Field(
        0, ge=0, le=1000, description="Index of the classifier's output that is the reward."
    )

    def score(self, model: ClassifierReward, chat: Chat, answer: SoftAnswer) -> Tensor:
        """Output of the classifier at the end of the chat template."""
        return model.score(chat, answer, self.label)

    def final(
        self, model: ClassifierReward, chat: Chat, answer: SoftAnswer, texts: Sequence[str]
    ) -> Tensor:
        """Output for the answer's text, which the reward model tokenises itself."""
        return model.score_texts(chat, texts, self.label)


class YesNoReward(RewardSpec):
    """The model's logit of "Yes" minus that of "No" when asked whether the answer is good; for
    models that follow instructions.
    """

    kind: ClassVar[Kind] = "language_model"
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

    def score(self, model: LanguageModelReward, chat: Chat, answer: SoftAnswer) -> Tensor:
        """Logit of ``yes`` minus logit of ``no`` after the rubric."""
        before, _, after = self.rubric.partition("{answer}")
        logits_BV = model.next_logits(before.replace("{prompt}", transcript(chat)), answer, after)
        return logits_BV[:, model.token(self.yes)] - logits_BV[:, model.token(self.no)]


class LogLikelihoodReward(RewardSpec):
    """Mean log-likelihood per token of the answer given the prompt, in nats; for small models that
    follow no instructions.
    """

    kind: ClassVar[Kind] = "language_model"
    type: Literal["log_likelihood"] = "log_likelihood"
    layout: str = Field(
        "<|prompt|>{prompt}<|answer|>",
        max_length=4000,
        description="What stands before the answer.",
    )

    def score(self, model: LanguageModelReward, chat: Chat, answer: SoftAnswer) -> Tensor:
        """Mean log-likelihood per token of the answer, in nats."""
        return model.mean_log_likelihood(self.layout.replace("{prompt}", transcript(chat)), answer)
