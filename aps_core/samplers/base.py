"""Interface of a sampler: frozen settings with ``init`` and ``step``.

To add one, write a file in this folder, or register a class under the entry-point group
``aps.samplers``. :func:`aps_core.sampling.driver.sample` resumes runs, measures time, calls the
hooks, handles cancellation and decodes the final tokens.
"""

from __future__ import annotations

import inspect
import sys
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from annotated_types import Le

from aps_core.registry import Spec
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.settings import APSSettings
from aps_core.types import SamplerState

if TYPE_CHECKING:
    from torch import Tensor

Denoiser = Literal["estimates", "noise"]
"""What a prior restores: estimates (:class:`aps_core.types.DenoisingPrior`), or pictures with white
noise of a known level (:class:`aps_core.types.NoisePrior`).
"""

REVERSE_STEPS = "Rounds in which tokens are decided, a share in each (reverse steps T)."
"""Description of the field ``steps`` of samplers that decide tokens."""


class SamplerSpec(Spec, family=True):
    """A method to draw posterior samples in reverse steps, and its settings."""

    steps: int
    guidance_scale: float = 0.0
    keeps_decided: ClassVar[bool] = False
    """Whether tokens decided before the first step stay unchanged. Editing requires it."""
    decodes_tokens: ClassVar[bool] = True
    """Whether :meth:`decoded` depends only on the tokens of the last step."""
    needs_denoiser: ClassVar[Denoiser | None] = None
    """The kind of denoising prior that it needs, if any."""
    beyond_borders: ClassVar[bool] = False
    """Whether it restores blurred uploads beyond their borders, because pixels outside contributed
    to the blur; the surplus is cropped at the end. The prior must support grids of any size.
    """

    def init(self, problem: Problem, z_BL: Tensor) -> Any:
        """Creates the state shared by all steps. It must be reproducible when a run is resumed.

        Args:
            problem: prior, objective, grid and random generator.
            z_BL: tokens before the first step, even if the run resumes at a later step.
        """
        return None

    @abstractmethod
    def step(self, problem: Problem, memory: Any, state: SamplerState) -> Step:
        """Runs one reverse step. Gradients are disabled unless the step enables them.

        Args:
            problem: prior, objective, grid and random generator.
            memory: return value of :meth:`init`.
            state: tokens after ``state.step`` finished steps.

        Raises:
            SamplingDiverged: the loss is not finite.
        """

    def decoded(self, problem: Problem, state: SamplerState) -> Tensor:
        """The pictures (B, 3, H, W) of the last step."""
        return problem.decode(state.z_BL)

    def deviation(self, state: SamplerState) -> Tensor | None:
        """Standard deviation (B, H, W) of the error expected of the brightness of the last step's
        pictures; None if unknown.
        """
        return None

    def finish(self, problem: Problem, x_BCHW: Tensor) -> Tensor:
        """The result, given the pictures (B, 3, H, W) of the last step."""
        return x_BCHW

    @property
    def decodes(self) -> int:
        """Evaluations of the objective per picture and reverse step."""
        return 1

    @property
    def extra_passes(self) -> int:
        """Estimated further cost of a run beside :attr:`decodes` and the prior, in decoder
        evaluations with gradient.
        """
        return 0

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """Fields with which a reverse step takes about ``decodes`` decoder evaluations."""
        return {}

    def for_samples(self, samples: int) -> Self:
        """Adapts the settings to a batch with ``samples`` samples per measurement.

        By default, samplers treat a batch as samples of one measurement, which must differ.
        """
        return self

    @classmethod
    def preset(cls) -> dict[str, Any]:
        """Fields that this class sets differently from its parent. Neither a prior's recommendation
        nor a benchmark's settings override them.
        """
        return {}

    @classmethod
    def shared(cls, config: APSSettings) -> dict[str, Any]:
        """Fields of ``config`` that have the same meaning in this sampler."""
        return {"guidance_scale": config.guidance_scale}

    @classmethod
    def like(cls, config: APSSettings, changes: Mapping[str, Any] | None = None) -> Self:
        """Settings of this sampler with the same amount of work as ``config``: T reverse steps with
        M decoder evaluations each.

        ``changes`` override fields of this sampler. If they change the number of reverse steps, the
        total number of decoder evaluations is divided among the new number of steps; the steps are
        reduced if there are fewer evaluations than steps.

        Raises:
            pydantic.ValidationError: a change is unknown or out of range.
        """
        fixed = {**cls.preset(), **(changes or {})}
        steps, decodes = config.steps, config.inner_steps
        wanted = fixed.get("steps", min(steps, _most_steps(cls)))
        if isinstance(wanted, int) and wanted != steps:
            steps, total = min(wanted, max(steps * decodes, steps)), steps * decodes
            decodes, fixed["steps"] = total // max(1, steps), steps
        return cls.model_validate(
            {**cls.shared(config), "steps": steps, **cls.for_decodes(decodes), **fixed}
        )


def _most_steps(cls: type[SamplerSpec]) -> int:
    """Largest number of reverse steps that a sampler accepts."""
    limits = [rule.le for rule in cls.model_fields["steps"].metadata if isinstance(rule, Le)]
    return min((int(limit) for limit in limits if isinstance(limit, int)), default=sys.maxsize)


def own_defaults(cls: type[SamplerSpec]) -> dict[str, Any]:
    """Defaults of the fields declared by the class itself, except ``type``."""
    return {
        name: cls.model_fields[name].default
        for name in inspect.get_annotations(cls)
        if name in cls.model_fields and name != "type"
    }
