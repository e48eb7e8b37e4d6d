"""Guided text: answers a prompt with a language model, guided by a reward model."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints

from aps_core._lazy import lazy_import
from aps_core.errors import InvalidSpec
from aps_core.priors import TextPriorSpec
from aps_core.registry import any_of
from aps_core.tasks.base import Inputs, RunContext, Size, TaskSpec
from aps_core.tasks.progress import Progress
from aps_core.tasks.results import File, Result
from aps_core.text.config import TextConfig
from aps_core.text.rewards import RewardSpec
from aps_core.types import SamplerState

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.runtime.engine import TextEngine
    from aps_core.text.aps import TextReward
    from aps_core.text.masked_lm import MaskedLM
    from aps_core.text.sampling import TextStep
else:
    torch = lazy_import("torch")


UNDECIDED = "▢"


class GuideSpec(TaskSpec):
    """Answer a prompt with a diffusion language model, guided by a reward model."""

    type: Literal["guide"] = "guide"
    prior: str = Field(
        "embedded_text", min_length=1, max_length=64, description="Text prior to sample from."
    )
    prompt: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)
    ] = Field(description="Prompt to answer.")
    guidance: bool = Field(
        True,
        description=(
            "Guide the answer by the reward. If off, the prior is sampled without guidance."
        ),
    )
    reward: any_of(RewardSpec) | None = Field(  # type: ignore[valid-type]
        None, description="How the reward is computed. Default: the prior's recommendation."
    )
    compare_unguided: bool = Field(
        False, description="Also sample without guidance, with the same seed."
    )
    sampler: TextConfig = Field(
        default_factory=TextConfig,
        description="Sampler settings; omitted fields follow the prior's recommendation.",
    )

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
        return config.max_new_tokens, config.steps * len(self._runs())

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
                "reward": self.reward or prior.reward,
            }
        )

    def run(self, inputs: Inputs, context: RunContext) -> TextResult:
        """One run, or a guided and an unguided run with the same seed."""
        from aps_core.runtime.engine import TextEngine
        from aps_core.text.aps import TextReward, sample_text_aps

        engine, resume = context.engine, context.resume
        assert isinstance(engine, TextEngine)  # ``resolved`` rejects other priors
        assert self.reward is not None
        started = time.perf_counter()
        timing = {"prior": 0.0, "sampling": 0.0}
        reward = TextReward(engine.reward, self.reward, self.prompt)
        prompt_BP = torch.tensor([engine.prior.encode(self.prompt)], device=engine.device)
        runs, steps, width = self._runs(), self.sampler.steps, prompt_BP.shape[1]
        # A checkpoint holds the ids of finished runs, then those of the current run.
        done = [ids_S[None] for ids_S in resume.z_BL[:-1].to(engine.device)] if resume else []
        curve: list[float] = []

        def hook(info: TextStep) -> bool | None:
            timing["prior"] += info.prior_seconds
            timing["sampling"] += info.seconds
            curve.extend(info.reward_curve[:1])
            if context.on_step is None:
                return None
            ids_BS = torch.cat([*done, info.state.z_BL])
            state = SamplerState(
                len(done) * steps + info.state.step, ids_BS, info.state.generator_state
            )
            shown, fresh = (
                ids_BS[-1, width:].tolist(),
                info.decided_BS[0, width:].nonzero().flatten().tolist(),
            )
            text = partial_text(engine.prior, shown)
            progress = TextProgress(
                state,
                len(runs) * steps,
                info.seconds,
                info.prior_seconds,
                context.fingerprint,
                runs[len(done)],
                text,
                shown,
                fresh,
                info.reward_curve,
            )
            return context.on_step(progress)

        first = len(done)
        for number, guided in list(enumerate(runs))[first:]:
            state = (
                SamplerState(resume.step - first * steps, resume.z_BL[-1:], resume.generator_state)
                if resume and number == first
                else None
            )
            generator = torch.Generator(engine.device).manual_seed(self.seed)
            chosen = reward if guided else None
            done.append(
                sample_text_aps(
                    engine.prior,
                    prompt_BP,
                    self.sampler,
                    generator=generator,
                    reward=chosen,
                    on_step=hook,
                    on_inner=context.on_inner,
                    resume=state,
                )
            )
        answers = [
            _answer(engine, reward, ids_BS[:, width:], guided)
            for ids_BS, guided in zip(done, runs, strict=True)
        ]
        total = width + self.sampler.max_new_tokens
        long = (
            f"Prompt and answer take {total} tokens; the prior was trained on"
            f" {engine.spec.native_length}."
        )
        return TextResult(
            spec=self,
            seconds={**timing, "total": time.perf_counter() - started},
            fingerprint=context.fingerprint,
            resumed_from_step=resume.step if resume else None,
            notes=[long] if total > engine.spec.native_length else [],
            answer=answers[0],
            unguided=answers[1] if len(answers) > 1 else None,
            reward_curve=curve,
        )

    def _runs(self) -> list[bool]:
        """For each run of the job, whether it is guided."""
        return [True, False] if self.guidance and self.compare_unguided else [self.guidance]


@dataclass(frozen=True)
class TextProgress(Progress):
    """Progress of a text task."""

    guided: bool
    """False in the comparison run, or if guidance is off."""
    text: str
    """The answer so far, with a box for every undecided token."""
    ids: list[int]
    decided: list[int]
    """Positions in the answer decided in this step."""
    reward_curve: list[float]
    """Reward at every inner iteration of this step."""

    @property
    def inner_steps(self) -> int:
        """Reward evaluations of this step."""
        return len(self.reward_curve)

    def event(self) -> dict[str, Any]:
        """Adds the text so far, decided positions and rewards."""
        return {
            **super().event(),
            "guided": self.guided,
            "text": self.text,
            "decided": self.decided,
            "reward_curve": self.reward_curve,
        }


@dataclass(frozen=True)
class Answer:
    """One finished answer."""

    text: str
    ids: list[int]
    reward: float
    guided: bool


@dataclass(frozen=True, kw_only=True)
class TextResult(Result):
    """An answer, and optionally the unguided one for comparison."""

    answer: Answer
    unguided: Answer | None
    reward_curve: list[float]
    """Reward at the first inner iteration of every guided step."""

    def sidecar(self) -> dict[str, Any]:
        """Adds both answers and a disclaimer."""
        return {
            "notice": "Made by a generative model: fluent text is not evidence that it is true.",
            **super().sidecar(),
            "answer": asdict(self.answer),
            "unguided": asdict(self.unguided) if self.unguided else None,
            "reward_curve": self.reward_curve,
        }

    def metrics(self) -> dict[str, Any]:
        """Adds the rewards."""
        unguided = self.unguided.reward if self.unguided else None
        return {**super().metrics(), "reward": self.answer.reward, "unguided_reward": unguided}

    def files(self, suffix: str = ".png") -> list[File]:
        """The guided answer, and the unguided one if sampled, as plain text."""
        answers = {"answer.txt": self.answer, "unguided.txt": self.unguided}
        return [
            File(name, answer.text.encode(), "text/plain; charset=utf-8")
            for name, answer in answers.items()
            if answer
        ]


def partial_text(prior: MaskedLM, ids: list[int]) -> str:
    """Text of an unfinished answer: decided tokens, and a box for every masked token."""
    stretches = [
        (masked, list(some)) for masked, some in groupby(ids, lambda token: token == prior.mask_id)
    ]
    return "".join(
        UNDECIDED * len(some) if masked else prior.tokenizer.decode(some, skip_special_tokens=True)
        for masked, some in stretches
    )


def _answer(engine: TextEngine, reward: TextReward, ids_BL: Tensor, guided: bool) -> Answer:
    ids: list[int] = ids_BL[0].tolist()
    return Answer(engine.prior.decode(ids), ids, float(reward.of(ids_BL)), guided)
