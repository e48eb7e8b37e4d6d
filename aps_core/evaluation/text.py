"""Compares ways to answer prompts with a text prior, at the same seeds and about equal time.

Without guidance, more answers are sampled in the time that guidance takes, and the best by the
reward is kept. Every answer is also scored by models that play no part in choosing it: a judge, and
the likelihood under an independent language model. A method that only pleases its reward model
gains reward and loses there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import torch

from aps_core.engines.engine import TextEngine
from aps_core.evaluation.questions import Question
from aps_core.tasks import GuideSpec, Inputs, TextResult, run
from aps_core.text.aps import TextReward
from aps_core.text.chat import chat_of
from aps_core.text.config import TextConfig
from aps_core.text.relaxations import RelaxationSpec
from aps_core.text.rewards import LogLikelihoodReward, RewardSpec, SequenceClassifierReward
from aps_core.text.rewards.network import RewardNetwork

UNGUIDED, BEST_OF = "unguided", "best_of"
MOST_SAMPLES = 16
"""Answers of best-of-K at most; the job's limit."""
TIMED_ANSWERS = 3
"""Answers whose median time finds the K that takes as long as guidance."""


Key = tuple[str, int, str]
"""Prompt, seed and name of the method."""


@dataclass(frozen=True)
class Method:
    """One way to answer."""

    name: str
    spec: dict[str, Any]
    """Fields of the job besides prior, prompt, seed and reward."""


@dataclass(frozen=True)
class Row:
    """The answer of one method to one prompt."""

    prompt: str
    seed: int
    method: str
    reward: float
    mean_reward: float
    """Mean over the answers sampled together."""
    judge: float | None
    """Score of the judge; None without one."""
    likelihood: float | None
    """Mean log-likelihood per token under the independent model, in nats; None without one."""
    distinct: float
    """Share of distinct tokens in the answer; low for repetitive answers."""
    tokens: int
    samples: int
    """Answers sampled together (K)."""
    seconds: float
    cpu_seconds: float
    """Processor time, which other programs on the machine disturb less than ``seconds``."""
    text: str

    @property
    def key(self) -> Key:
        """What the answer is an answer to."""
        return self.prompt, self.seed, self.method


@dataclass(frozen=True)
class Scorer:
    """An independent model and how it scores."""

    model: RewardNetwork
    spec: RewardSpec

    def score(self, prompt: str, ids: list[int], text: str) -> float:
        """Score of a finished answer."""
        device = self.model.aligned_VD.device
        reward = TextReward(self.model, self.spec, chat_of(prompt))
        return float(reward.of(torch.tensor([ids], device=device), [text]))


@dataclass(frozen=True)
class Judges:
    """Models that score answers and play no part in choosing them."""

    judge: Scorer | None = None
    likelihood: Scorer | None = None

    @classmethod
    def of(
        cls, engine: TextEngine, judge: RewardNetwork | None, independent: RewardNetwork | None
    ) -> Judges:
        """Scores a classifier by its output, and a language model as the prior's reward does.

        Raises:
            InvalidSpec: ``independent`` is not a language model.
        """
        own = engine.spec.reward
        spec: RewardSpec = (
            SequenceClassifierReward()
            if judge is not None and judge.kind == "classifier"
            else own
            if own.kind == "language_model"
            else LogLikelihoodReward()
        )
        likelihood = own if isinstance(own, LogLikelihoodReward) else LogLikelihoodReward()
        return cls(
            None if judge is None else Scorer(judge, spec),
            None if independent is None else Scorer(independent, likelihood),
        )


@dataclass(frozen=True)
class Comparison:
    """What is compared, with which settings."""

    engine: TextEngine
    config: TextConfig
    seeds: int
    reward: RewardSpec | None = None
    judges: Judges = field(default_factory=Judges)

    def methods(self, samples: int, best_of: int) -> list[Method]:
        """Unguided, best-of-K with K = ``best_of``, and every relaxation with ``samples`` answers
        sampled together.
        """
        settings = self.config.model_dump(mode="json", include=self.config.model_fields_set)
        own = settings.pop("relaxation", {})
        guided = [
            Method(
                name,
                {
                    "num_samples": samples,
                    "sampler": {
                        **settings,
                        "relaxation": own if own.get("type") == name else {"type": name},
                    },
                },
            )
            for name in sorted(RelaxationSpec.family)
        ]
        plain = {"guidance": False, "sampler": settings}
        return [
            Method(UNGUIDED, plain),
            Method(BEST_OF, {**plain, "num_samples": best_of}),
            *guided,
        ]

    def matching_best_of(self, samples: int, prompt: str) -> int:
        """The K of best-of-K that takes about as long as guidance on this machine: the largest K
        that is not slower, at least 1.
        """
        unguided, _, *guided = self.methods(samples, 1)
        budget = self._seconds(guided[0], prompt)
        best = 1
        while best < MOST_SAMPLES:
            more = Method(BEST_OF, {**unguided.spec, "num_samples": min(2 * best, MOST_SAMPLES)})
            if self._seconds(more, prompt) > budget:
                break
            best = min(2 * best, MOST_SAMPLES)
        return best

    def evaluate(
        self,
        questions: Sequence[Question],
        methods: Sequence[Method],
        report: Callable[[Row], None] = lambda row: None,
        known: Collection[Key] = (),
    ) -> list[Row]:
        """Answers every prompt with every method and seed, except those of ``known``."""
        rows = []
        for question in questions:
            for seed in range(self.seeds):
                for method in methods:
                    if (question.prompt, seed, method.name) in known:
                        continue
                    started = time.process_time()
                    result = self._answer(method, question.prompt, seed)
                    used = time.process_time() - started
                    rows.append(self._row(method, question.prompt, seed, result, used))
                    report(rows[-1])
        return rows

    def accuracy(self, questions: Sequence[Question]) -> float | None:
        """Share of pairs in which the reward model ranks the preferred answer higher; None without
        pairs.
        """
        spec = self.engine.spec.resolved_reward(self.reward)
        scorer = Scorer(self.engine.reward_model(spec), spec)
        right = [
            self._score(scorer, question.prompt, good) > self._score(scorer, question.prompt, bad)
            for question in questions
            for good, bad in question.pairs
        ]
        return fmean(right) if right else None

    def _score(self, scorer: Scorer, prompt: str, text: str) -> float:
        prior = self.engine.prior
        ids = prior.tokenizer.encode(text, add_special_tokens=False).ids
        return scorer.score(prompt, [*ids, prior.eos_id], text)

    def _seconds(self, method: Method, prompt: str) -> float:
        times = []
        for seed in range(TIMED_ANSWERS):
            started = time.perf_counter()
            self._answer(method, prompt, seed)
            times.append(time.perf_counter() - started)
        return median(times)

    def _answer(self, method: Method, prompt: str, seed: int) -> TextResult:
        spec = GuideSpec(
            prior=self.engine.spec.type, prompt=prompt, seed=seed, reward=self.reward, **method.spec
        )
        result = run(spec, Inputs(), self.engine)
        assert isinstance(result, TextResult)
        return result

    def _row(
        self, method: Method, prompt: str, seed: int, result: TextResult, cpu_seconds: float
    ) -> Row:
        answer, judges = result.answer, self.judges
        kept = answer.ids[: answer.tokens]

        def score(scorer: Scorer | None) -> float | None:
            return None if scorer is None else scorer.score(prompt, answer.ids, answer.text)

        return Row(
            prompt=prompt,
            seed=seed,
            method=method.name,
            reward=answer.reward,
            mean_reward=fmean(each.reward for each in result.answers),
            judge=score(judges.judge),
            likelihood=score(judges.likelihood),
            distinct=len(set(kept)) / max(1, len(kept)),
            tokens=answer.tokens,
            samples=len(result.answers),
            seconds=result.seconds["total"],
            cpu_seconds=cpu_seconds,
            text=answer.text,
        )
