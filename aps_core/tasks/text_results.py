"""Progress and result of a text task. Needs no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from aps_core.tasks.answers import Answer, Row
from aps_core.tasks.progress import Progress
from aps_core.tasks.results import File, Result


@dataclass(frozen=True)
class TextProgress(Progress):
    """Progress of a text task."""

    guided: bool
    """False in the comparison run, or if guidance is off."""
    rows: list[Row]
    """The answers that are sampled together."""
    ids: list[list[int]]
    """Their tokens."""
    reward_curve: list[float]
    """Reward at every inner iteration of this step, mean over the rows."""

    @property
    def inner_steps(self) -> int:
        """Reward evaluations of this step."""
        return len(self.reward_curve)

    def event(self) -> dict[str, Any]:
        """Adds the answers so far and the rewards; ``text`` and ``decided`` are the first row's."""
        return {
            **super().event(),
            "guided": self.guided,
            "text": self.rows[0].text,
            "decided": self.rows[0].decided,
            "rows": [asdict(row) for row in self.rows],
            "reward_curve": self.reward_curve,
        }


@dataclass(frozen=True, kw_only=True)
class TextResult(Result):
    """Answers, and optionally unguided ones for comparison."""

    answers: list[Answer]
    """All answers, as sampled: guided, if guidance is on. Those of the first prompt come first."""
    unguided_answers: list[Answer]
    """Answers of the comparison run; empty without one."""
    reward_curve: list[float]
    """Reward at the first inner iteration of every guided step, mean over the rows."""
    prompt_tokens: int
    """Tokens of the longest prompt."""
    token_coverage: float
    """Share of the prior's tokens that the reward model knows."""
    reuse: dict[str, float | None] | None = None
    """Work and error of reused keys and values (:meth:`aps_core.text.reuse.Reuse.summary`); None
    without reuse.
    """

    @property
    def answer(self) -> Answer:
        """The answer to the first prompt with the highest reward."""
        return self.best[0]

    @property
    def best(self) -> list[Answer]:
        """For every prompt, the answer with the highest reward."""
        return best_of_each(self.answers)

    @property
    def unguided(self) -> Answer | None:
        """The unguided answer to the first prompt with the highest reward."""
        return best_of_each(self.unguided_answers)[0] if self.unguided_answers else None

    def sidecar(self) -> dict[str, Any]:
        """Adds all answers with their rewards, and a disclaimer."""
        several = len(self.answers) > 1
        return {
            "notice": "Made by a generative model: fluent text is not evidence that it is true.",
            **super().sidecar(),
            "answer": asdict(self.answer),
            "unguided": asdict(self.unguided) if self.unguided else None,
            "answers": [asdict(answer) for answer in self.answers] if several else None,
            "unguided_answers": (
                [asdict(answer) for answer in self.unguided_answers]
                if several and self.unguided_answers
                else None
            ),
            "best_answers": [asdict(answer) for answer in self.best]
            if len(self.best) > 1
            else None,
            "mean_reward": fmean(answer.reward for answer in self.answers),
            "reward_curve": self.reward_curve,
            "prompt_tokens": self.prompt_tokens,
            "token_coverage": self.token_coverage,
            "reuse": self.reuse,
        }

    def metrics(self) -> dict[str, Any]:
        """Adds the rewards of the best answers, mean over the prompts."""
        unguided = best_of_each(self.unguided_answers)
        return {
            **super().metrics(),
            "reward": fmean(answer.reward for answer in self.best),
            "mean_reward": fmean(answer.reward for answer in self.answers),
            "unguided_reward": fmean(answer.reward for answer in unguided) if unguided else None,
        }

    def files(self, suffix: str = ".png") -> list[File]:
        """The best answer to the first prompt, the best unguided one if sampled, every answer if
        there are several, and the best answer to every prompt if there are several, as plain text.
        """
        named = {"answer.txt": self.answer}
        if self.unguided:
            named["unguided.txt"] = self.unguided
        if len(self.answers) > 1:
            for number, answer in enumerate(self.answers, start=1):
                named[f"answer-{number}.txt"] = answer
        if len(self.best) > 1:
            for number, answer in enumerate(self.best, start=1):
                named[f"best-{number}.txt"] = answer
        return [
            File(name, answer.text.encode(), "text/plain; charset=utf-8")
            for name, answer in named.items()
        ]


def best_of_each(answers: list[Answer]) -> list[Answer]:
    """For every prompt, the answer with the highest reward, the first of equals."""
    groups = groupby(answers, key=lambda answer: answer.prompt)
    return [max(group, key=lambda answer: answer.reward) for _, group in groups]
