"""Guided text: answers a prompt with a language model, guided by a reward model."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from aps_core.errors import InvalidSpec
from aps_core.priors import TextPriorSpec
from aps_core.registry import AnyOf
from aps_core.tasks.base import Inputs, RunContext, TaskSpec
from aps_core.tasks.guide_run import GuideRun
from aps_core.tasks.text_results import TextResult
from aps_core.text.blocks import blocks_of
from aps_core.text.chat import MAX_PROMPT, Chat, Message, Text, chat_of
from aps_core.text.config import TextConfig
from aps_core.text.rewards import RewardSpec
from aps_core.types import Size

Messages = Annotated[tuple[Message, ...], Field(min_length=1, max_length=32)]
Prompt = Annotated[
    Text | Messages, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_PROMPT})
]
MOST_ROWS = 16
"""Answers of one job, for all prompts together."""
StopString = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class GuideSpec(TaskSpec):
    """Answer a prompt with a diffusion language model, guided by a reward model."""

    type: Literal["guide"] = "guide"
    prior: str = Field(
        "embedded_text", min_length=1, max_length=64, description="Text prior to sample from."
    )
    prompt: Prompt = Field(description="Prompt to answer, or the messages of a chat, oldest first.")
    guidance: bool = Field(
        True,
        description=(
            "Guide the answer by the reward. If off, the prior is sampled without guidance."
        ),
    )
    reward: Annotated[RewardSpec, AnyOf(RewardSpec)] | None = Field(
        None, description="How the reward is computed. Default: the prior's recommendation."
    )
    more_prompts: tuple[Prompt, ...] = Field(
        (),
        max_length=MOST_ROWS - 1,
        description=(
            "Further prompts or chats, answered in the same batch with the same settings. Prompts"
            f" times num_samples is at most {MOST_ROWS}."
        ),
    )
    num_samples: int = Field(
        1,
        ge=1,
        le=MOST_ROWS,
        description=(
            "Answers per prompt, sampled together (K); the one with the highest reward is the"
            " result."
        ),
    )
    stop: tuple[StopString, ...] = Field(
        (), max_length=4, description="The answer ends before the first of these texts."
    )
    compare_unguided: bool = Field(
        False, description="Also sample without guidance, with the same seed."
    )
    sampler: TextConfig = Field(
        default_factory=TextConfig,
        description="Sampler settings; omitted fields follow the prior's recommendation.",
    )

    @property
    def prompts(self) -> tuple[str | Chat, ...]:
        """All prompts of the job."""
        return (self.prompt, *self.more_prompts)

    @property
    def rows(self) -> int:
        """Answers sampled together, for all prompts."""
        return len(self.prompts) * self.num_samples

    @model_validator(mode="after")
    def _fits_a_batch(self) -> Self:
        if self.rows > MOST_ROWS:
            raise ValueError(
                f"{len(self.prompts)} prompts times num_samples {self.num_samples} are"
                f" {self.rows} answers; one job samples at most {MOST_ROWS}"
            )
        return self

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Weights of the reward model, unless it ships with the prior."""
        name = self.prior_spec().resolved_reward(self.reward).model
        return (name,) if name else ()

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks the lengths of prompts and blocks; pictures are not accepted."""
        prior = self.prior_spec()
        for prompt in self.prompts:
            prior.check_prompt(prompt)
        blocks_of(self.resolved().sampler)
        if image is not None or mask is not None:
            raise InvalidSpec("The task 'guide' takes no picture; leave 'image' and 'mask' out.")

    def output_size(self, image: Size | None) -> None:
        """None: the result is text."""

    def work(self, image: Size | None) -> tuple[int, int]:
        """The measured unit is a guided reverse step."""
        config = self.resolved().sampler
        return config.max_new_tokens * self.rows, config.steps * len(self.runs())

    def prior_spec(self) -> TextPriorSpec:
        """Spec of the prior this task samples from.

        Raises:
            InvalidSpec: no text prior has that name.
        """
        return self._prior_of(TextPriorSpec)  # type: ignore[type-abstract]

    def resolved(self) -> Self:
        """Fills in the settings of sampler and reward."""
        prior = self.prior_spec()
        return self.model_copy(
            update={
                "sampler": self.sampler.with_recommended(prior.recommended),
                "reward": prior.resolved_reward(self.reward),
            }
        )

    def runs(self) -> list[bool]:
        """For each run of the job, whether it is guided."""
        return [True, False] if self.guidance and self.compare_unguided else [self.guidance]

    def run(self, inputs: Inputs, context: RunContext) -> TextResult:
        """One run, or a guided and an unguided run with the same seed."""
        from aps_core.engines.engine import TextEngine
        from aps_core.text.aps import BatchReward

        engine = context.engine
        assert isinstance(engine, TextEngine)  # ``resolved`` rejects other priors
        assert self.reward is not None  # filled in by ``resolved``
        rewards = [engine.text_reward(self.reward, chat_of(prompt)) for prompt in self.prompts]
        run = GuideRun(
            engine=engine,
            context=context,
            reward=BatchReward(tuple(rewards)),
            prompts=self.prompts,
            num_samples=self.num_samples,
            runs=self.runs(),
            sampler=self.sampler,
            seed=self.seed,
            stop=self.stop,
        )
        return run.result(self)
