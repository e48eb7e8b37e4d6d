"""What a sampler is: frozen settings with ``init`` and ``step``.

To add one, write a file in this folder (or register a class under the entry-point group
``aps.samplers``). :func:`aps_core.sampling.driver.sample` runs it: it resumes, measures time, calls
the hooks, cancels, and decodes the final tokens.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from aps_core.registry import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.samplers.aps import APSConfig
    from aps_core.sampling.driver import Problem
    from aps_core.types import SamplerState


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a reverse step made."""

    z_BL: Tensor
    """The next tokens: codes or ``MASK``."""
    confidence_BL: Tensor
    """Score of every token that was masked; see :class:`aps_core.types.StepInfo`."""
    clean_BL: Tensor | None = None
    """The step's estimate as complete codes, decoded for the hook alone where ``x_hat_BCHW`` is
    left out.
    """
    x_hat_BCHW: Tensor | None = None
    """The step's estimate as a picture, where the sampler decoded one."""
    misfit: float = 0.0
    """Data misfit of ``x_hat_BCHW``, mean over the batch."""
    loss_curve: list[float] = field(default_factory=list)
    """The loss of every decoder evaluation, mean over the batch."""
    anchors_BL: Tensor | None = None
    """Which tokens the step decided; left out: those that are masked no more."""
    carried: Mapping[str, Tensor] = field(default_factory=dict)
    """What the next step needs beside the tokens; comes back in its state, also when resumed."""


class SamplerSpec(Spec, family=True):
    """A way to draw posterior samples in reverse steps, and its settings."""

    steps: int
    guidance_scale: float = 0.0
    keeps_decided: ClassVar[bool] = False
    """Whether tokens decided before the first step stay as they are, as editing needs."""

    def init(self, problem: Problem, z_BL: Tensor) -> Any:
        """What lasts for the whole run and can be made again when it is resumed.

        Args:
            problem: prior, objective, grid and random generator.
            z_BL: tokens before the first step, also where the run resumes from a later one.
        """
        return None

    @abstractmethod
    def step(self, problem: Problem, memory: Any, state: SamplerState) -> Step:
        """One reverse step, run without gradients except where it enables them.

        Args:
            problem: prior, objective, grid and random generator.
            memory: what :meth:`init` returned.
            state: tokens after ``state.step`` finished steps.

        Raises:
            SamplingDiverged: the loss is not finite.
        """

    @property
    def decodes(self) -> int:
        """Decoder evaluations of one picture in a reverse step."""
        return 1

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """Fields that make a reverse step take about ``decodes`` decoder evaluations."""
        return {}

    @classmethod
    def preset(cls) -> dict[str, Any]:
        """The fields this class itself sets over its parent's: neither a prior's recommendation nor
        a benchmark's settings change them.
        """
        return {}

    @classmethod
    def shared(cls, config: APSConfig) -> dict[str, Any]:
        """Fields of ``config`` that mean the same here."""
        return {"guidance_scale": config.guidance_scale}

    @classmethod
    def like(cls, config: APSConfig, changes: Mapping[str, Any] | None = None) -> Self:
        """These settings for the work of ``config``: T reverse steps of M decoder evaluations.

        ``changes`` are fields of its own; where they name another number of reverse steps, the same
        decoder evaluations are split over so many, or over fewer where there are not as many.

        Raises:
            pydantic.ValidationError: a change is unknown or out of range.
        """
        fixed = {**cls.preset(), **(changes or {})}
        steps, decodes = config.steps, config.inner_steps
        if isinstance(wanted := fixed.get("steps"), int):
            steps, total = min(wanted, max(steps * decodes, steps)), steps * decodes
            decodes, fixed["steps"] = total // max(1, steps), steps
        return cls.model_validate(
            {**cls.shared(config), "steps": steps, **cls.for_decodes(decodes), **fixed}
        )


def own_defaults(cls: type[SamplerSpec]) -> dict[str, Any]:
    """Defaults of the fields that a class itself declares, without its name."""
    return {
        name: cls.model_fields[name].default
        for name in inspect.get_annotations(cls)
        if name in cls.model_fields and name != "type"
    }
