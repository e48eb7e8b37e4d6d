"""Runs a text job: samples the answers, reports progress, resumes, and scores the result.

Shapes: B rows (K answers to every prompt), P prompt tokens, L answer tokens, S = P + L.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.registry import Spec
from aps_core.tasks.answers import Answer, Row, finished, partial_text, settled_text
from aps_core.tasks.base import RunContext
from aps_core.tasks.text_results import TextProgress, TextResult
from aps_core.text.chat import Chat, chat_of
from aps_core.text.config import TextConfig
from aps_core.types import SamplerState

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import TextEngine
    from aps_core.text.aps import BatchReward
    from aps_core.text.reuse import Reuse
    from aps_core.text.sampling import TextStep
else:
    torch = lazy_import("torch")


@dataclass(kw_only=True)
class GuideRun:
    """The runs of one job. A checkpoint holds the ids of finished runs, then of the current one.

    B rows: the K answers of the first prompt, then those of the next. Shorter prompts are padded on
    the left.
    """

    engine: TextEngine
    context: RunContext
    reward: BatchReward
    prompts: Sequence[str | Chat]
    num_samples: int
    """Answers per prompt K."""
    runs: Sequence[bool]
    """For each run, whether it is guided."""
    sampler: TextConfig
    seed: int
    stop: Sequence[str]
    """An answer ends before the first of these texts."""
    started: float = field(default_factory=time.perf_counter)
    timing: dict[str, float] = field(default_factory=lambda: {"prior": 0.0, "sampling": 0.0})
    curve: list[float] = field(default_factory=list)
    reuse: dict[int, Reuse] = field(default_factory=dict)
    """Work and error of reused keys and values by run, since the job's start or resumption."""

    def __post_init__(self) -> None:
        engine, resume = self.engine, self.context.resume
        prompts = [engine.prior.encode(chat_of(prompt)) for prompt in self.prompts]
        width = max(len(ids) for ids in prompts)
        missing = [width - len(ids) for ids in prompts]
        padded = [
            [engine.prior.eos_id] * gap + ids for gap, ids in zip(missing, prompts, strict=True)
        ]
        seen = [[0] * gap + [1] * (width - gap) for gap in missing]
        repeated = partial(torch.repeat_interleave, repeats=self.num_samples, dim=0)
        self.prompt_BP = repeated(torch.tensor(padded, device=engine.device))
        self.attention_BP = (
            repeated(torch.tensor(seen, device=engine.device)) if any(missing) else None
        )
        rows_NS = resume.z_BL.to(engine.device) if resume else self.prompt_BP[:0]
        self.done = list(rows_NS.split(len(self.prompt_BP)))[:-1]
        self.first = len(self.done)

    def result(self, spec: Spec) -> TextResult:
        """Samples the remaining runs and scores all answers; ``spec`` is stored with them."""
        context = self.context
        for number in range(len(self.done), len(self.runs)):
            self.done.append(self._sample(number))
        answers = [
            self._answers(ids_BS[:, self._width :], guided)
            for ids_BS, guided in zip(self.done, self.runs, strict=True)
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
            token_coverage=self.reward.each[0].model.alignment.coverage,
            reuse=self._reuse(),
        )

    @property
    def _width(self) -> int:
        return self.prompt_BP.shape[1]

    def _sample(self, number: int) -> Tensor:
        """Ids (B, S) of a run, from the checkpoint if that belongs to it."""
        from aps_core.text.aps import sample_text_aps

        resume, engine = self.context.resume, self.engine
        state = None
        if resume is not None and number == self.first:
            state = SamplerState(
                resume.step - number * self.sampler.steps,
                resume.z_BL[-len(self.prompt_BP) :],
                resume.generator_state,
                resume.carried,
            )
        return sample_text_aps(
            engine.prior,
            self.prompt_BP,
            self.sampler,
            generator=torch.Generator(engine.device).manual_seed(self.seed),
            reward=self.reward if self.runs[number] else None,
            attention_BP=self.attention_BP,
            on_step=self._on_step,
            on_inner=self.context.on_inner,
            resume=state,
        )

    def _on_step(self, info: TextStep) -> bool | None:
        self.timing["prior"] += info.prior_seconds
        self.timing["sampling"] += info.seconds
        means = [fmean(rewards) for rewards in info.rewards_MB]
        self.curve.extend(means[:1])
        if info.reuse is not None:
            self.reuse[len(self.done)] = info.reuse
        if self.context.on_step is None:
            return None
        state, steps = info.state, self.sampler.steps
        ids_BL: list[list[int]] = state.z_BL[:, self._width :].tolist()
        decided_BL: list[list[bool]] = info.decided_BS[:, self._width :].tolist()
        last = info.rewards_MB[-1] if info.rewards_MB else [None] * len(ids_BL)
        return self.context.on_step(
            TextProgress(
                state=SamplerState(
                    len(self.done) * steps + state.step,
                    torch.cat([*self.done, state.z_BL]),
                    state.generator_state,
                    state.carried,
                ),
                total=len(self.runs) * steps,
                seconds=info.seconds,
                prior_seconds=info.prior_seconds,
                fingerprint=self.context.fingerprint,
                guided=self.runs[len(self.done)],
                rows=[
                    self._row(row // self.num_samples, *each)
                    for row, each in enumerate(zip(ids_BL, decided_BL, last, strict=True))
                ],
                ids=ids_BL,
                reward_curve=means,
            )
        )

    def _row(self, prompt: int, ids: list[int], fresh: list[bool], reward: float | None) -> Row:
        prior = self.engine.prior
        decided = [place for place, new in enumerate(fresh) if new]
        return Row(
            text=partial_text(prior, ids),
            settled=settled_text(prior, ids, self.stop),
            decided=decided,
            pieces=[prior.tokenizer.decode([ids[place]]) for place in decided],
            reward=reward,
            prompt=prompt,
        )

    def _answers(self, ids_BL: Tensor, guided: bool) -> list[Answer]:
        """Finished answers with their final rewards."""
        ends = [finished(self.engine.prior, ids, self.stop) for ids in ids_BL.tolist()]
        kept_BL = torch.tensor([ids for _, ids, _, _ in ends], device=ids_BL.device)
        rewards: list[float] = self.reward.of(kept_BL, [text for text, *_ in ends]).tolist()
        return [
            Answer(
                text=text,
                ids=ids,
                reward=reward,
                guided=guided,
                tokens=tokens,
                finish_reason=reason,
                prompt=row // self.num_samples,
            )
            for row, ((text, ids, tokens, reason), reward) in enumerate(
                zip(ends, rewards, strict=True)
            )
        ]

    def _reuse(self) -> dict[str, float | None] | None:
        """Summary over the runs; None without reuse."""
        if not self.reuse:
            return None
        first, *others = self.reuse.values()
        return sum(others, start=first).summary()

    def _notes(self) -> list[str]:
        total, native = (
            self._width + self.sampler.max_new_tokens,
            self.engine.spec.native_length,
        )
        notes = []
        if total > native:
            notes.append(
                f"Prompt and answer take {total} tokens; the prior was trained on {native}."
            )
        if reuse := self._reuse():
            distance = reuse["mean_distance"]
            error = (
                "not measured"
                if distance is None
                else f"{distance:.3f} mean total variation distance of a token's probabilities"
            )
            notes.append(f"Keys and values were reused, which is an approximation. Error: {error}.")
        return notes
