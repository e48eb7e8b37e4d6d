"""Guided text: answers a prompt with a language model, guided by a reward model."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, StringConstraints

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.priors import TextPriorSpec
from aps_core.registry import any_of
from aps_core.tasks.answers import Answer, Row, finished, partial_text, settled_text
from aps_core.tasks.base import Inputs, RunContext, Size, TaskSpec
from aps_core.tasks.text_results import TextProgress, TextResult
from aps_core.text.chat import MAX_PROMPT, Message, Text, chat_of
from aps_core.text.config import TextConfig
from aps_core.text.rewards import RewardSpec
from aps_core.types import SamplerState

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.runtime.engine import TextEngine
    from aps_core.text.aps import TextReward
    from aps_core.text.sampling import TextStep
else:
    torch = lazy_import("torch")

Messages = Annotated[tuple[Message, ...], Field(min_length=1, max_length=32)]
StopString = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class GuideSpec(TaskSpec):
    """Answer a prompt with a diffusion language model, guided by a reward model."""

    type: Literal["guide"] = "guide"
    prior: str = Field(
        "embedded_text", min_length=1, max_length=64, description="Text prior to sample from."
    )
    prompt: Text | Messages = Field(
        description="Prompt to answer, or the messages of a chat, oldest first.",
        json_schema_extra={"minLength": 1, "maxLength": MAX_PROMPT},
    )
    guidance: bool = Field(
        True,
        description=(
            "Guide the answer by the reward. If off, the prior is sampled without guidance."
        ),
    )
    reward: any_of(RewardSpec) | None = Field(  # type: ignore[valid-type]
        None, description="How the reward is computed. Default: the prior's recommendation."
    )
    num_samples: int = Field(
        1,
        ge=1,
        le=16,
        description="Answers sampled together (K); the one with the highest reward is the result.",
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
    def checkpoints(self) -> tuple[str, ...]:
        """Weights of the reward model, unless it ships with the prior."""
        name = self.prior_spec().resolved_reward(self.reward).model
        return (name,) if name else ()

    def check(self, image: Size | None, mask: Size | None, has_alpha: bool) -> None:
        """Checks the prompt length; pictures are not accepted."""
        self.prior_spec().check_prompt(self.prompt)
        if image is not None or mask is not None:
            raise InvalidSpec("The task 'guide' takes no picture; leave 'image' and 'mask' out.")

    def output_size(self, image: Size | None) -> None:
        """None: the result is text."""

    def work(self, image: Size | None) -> tuple[int, int]:
        """The measured unit is a guided reverse step."""
        config = self.resolved().sampler
        return config.max_new_tokens * self.num_samples, config.steps * len(self.runs())

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
        from aps_core.runtime.engine import TextEngine

        engine = context.engine
        assert isinstance(engine, TextEngine)  # ``resolved`` rejects other priors
        assert self.reward is not None  # filled in by ``resolved``
        return _Run(
            self, engine, context, engine.text_reward(self.reward, chat_of(self.prompt))
        ).result()


@dataclass
class _Run:
    """The runs of one job. A checkpoint holds the ids of finished runs, then of the current one."""

    spec: GuideSpec
    engine: TextEngine
    context: RunContext
    reward: TextReward
    started: float = field(default_factory=time.perf_counter)
    timing: dict[str, float] = field(default_factory=lambda: {"prior": 0.0, "sampling": 0.0})
    curve: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec, engine, resume = self.spec, self.engine, self.context.resume
        ids_1P = torch.tensor([engine.prior.encode(self.reward.chat)], device=engine.device)
        self.prompt_KP = ids_1P.expand(spec.num_samples, -1)
        self.runs = spec.runs()
        rows_NS = resume.z_BL.to(engine.device) if resume else self.prompt_KP[:0]
        self.done = list(rows_NS.split(spec.num_samples))[:-1]
        self.first = len(self.done)

    def result(self) -> TextResult:
        """Samples the remaining runs and scores all answers."""
        spec, context = self.spec, self.context
        for number in range(len(self.done), len(self.runs)):
            self.done.append(self._sample(number))
        answers = [
            self._answers(ids_KS[:, self._width :], guided)
            for ids_KS, guided in zip(self.done, self.runs, strict=True)
        ]
        return TextResult(
            spec=spec,
            seconds={**self.timing, "total": time.perf_counter() - self.started},
            fingerprint=context.fingerprint,
            resumed_from_step=context.resume.step if context.resume else None,
            notes=self._notes(),
            answers=answers[0],
            unguided_answers=answers[1] if len(answers) > 1 else [],
            reward_curve=self.curve,
            prompt_tokens=self._width,
            token_coverage=self.reward.model.alignment.coverage,
        )

    @property
    def _width(self) -> int:
        return self.prompt_KP.shape[1]

    def _sample(self, number: int) -> Tensor:
        """Ids (K, S) of a run, from the checkpoint if that belongs to it."""
        from aps_core.text.aps import sample_text_aps

        spec, resume, engine = self.spec, self.context.resume, self.engine
        state = None
        if resume is not None and number == self.first:
            state = SamplerState(
                resume.step - number * spec.sampler.steps,
                resume.z_BL[-spec.num_samples :],
                resume.generator_state,
            )
        return sample_text_aps(
            engine.prior,
            self.prompt_KP,
            spec.sampler,
            generator=torch.Generator(engine.device).manual_seed(spec.seed),
            reward=self.reward if self.runs[number] else None,
            on_step=self._on_step,
            on_inner=self.context.on_inner,
            resume=state,
        )

    def _on_step(self, info: TextStep) -> bool | None:
        self.timing["prior"] += info.prior_seconds
        self.timing["sampling"] += info.seconds
        means = [fmean(rewards) for rewards in info.rewards_MB]
        self.curve.extend(means[:1])
        if self.context.on_step is None:
            return None
        state, steps = info.state, self.spec.sampler.steps
        ids_KL: list[list[int]] = state.z_BL[:, self._width :].tolist()
        decided_KL: list[list[bool]] = info.decided_BS[:, self._width :].tolist()
        last = info.rewards_MB[-1] if info.rewards_MB else [None] * len(ids_KL)
        return self.context.on_step(
            TextProgress(
                SamplerState(
                    len(self.done) * steps + state.step,
                    torch.cat([*self.done, state.z_BL]),
                    state.generator_state,
                ),
                len(self.runs) * steps,
                info.seconds,
                info.prior_seconds,
                self.context.fingerprint,
                self.runs[len(self.done)],
                [self._row(*each) for each in zip(ids_KL, decided_KL, last, strict=True)],
                ids_KL,
                means,
            )
        )

    def _row(self, ids: list[int], fresh: list[bool], reward: float | None) -> Row:
        prior = self.engine.prior
        decided = [place for place, new in enumerate(fresh) if new]
        return Row(
            partial_text(prior, ids),
            settled_text(prior, ids, self.spec.stop),
            decided,
            [prior.tokenizer.decode([ids[place]]) for place in decided],
            reward,
        )

    def _answers(self, ids_KL: Tensor, guided: bool) -> list[Answer]:
        """Finished answers with their final rewards."""
        ends = [finished(self.engine.prior, ids, self.spec.stop) for ids in ids_KL.tolist()]
        kept_KL = torch.tensor([ids for _, ids, _, _ in ends], device=ids_KL.device)
        rewards: list[float] = self.reward.of(kept_KL, [text for text, *_ in ends]).tolist()
        return [
            Answer(text, ids, reward, guided, tokens, reason)
            for (text, ids, tokens, reason), reward in zip(ends, rewards, strict=True)
        ]

    def _notes(self) -> list[str]:
        total, native = (
            self._width + self.spec.sampler.max_new_tokens,
            self.engine.spec.native_length,
        )
        if total <= native:
            return []
        return [f"Prompt and answer take {total} tokens; the prior was trained on {native}."]
