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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from annotated_types import Le

from aps_core.registry import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.samplers.aps import APSConfig
    from aps_core.sampling.driver import Problem
    from aps_core.types import SamplerState

Denoiser = Literal["estimates", "noise"]
"""What a prior restores: estimates (:class:`aps_core.types.DenoisingPrior`), or pictures with white
noise of a known level (:class:`aps_core.types.NoisePrior`).
"""

REVERSE_STEPS = "Rounds in which tokens are decided, a share in each (reverse steps T)."
"""Description of the field ``steps`` of samplers that decide tokens."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Result of one reverse step."""

    z_BL: Tensor
    """The next tokens: codes, or ``MASK``."""
    confidence_BL: Tensor
    """Score of every token that was masked; see :class:`aps_core.types.StepInfo`."""
    clean_BL: Tensor | None = None
    """The step's estimate as complete codes. The driver decodes it for the step hook if
    ``x_hat_BCHW`` is None.
    """
    x_hat_BCHW: Tensor | None = None
    """The step's estimate as a picture, if the sampler decoded one."""
    misfit: float = 0.0
    """Data misfit of ``x_hat_BCHW``, mean over the batch."""
    loss_curve: list[float] = field(default_factory=list)
    """Loss of every decoder evaluation, mean over the batch."""
    anchors_BL: Tensor | None = None
    """True for tokens decided by this step. None means all tokens that are no longer masked."""
    carried: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors the next step needs besides the tokens. They are part of its state and of
    checkpoints.
    """


class SamplerSpec(Spec, family=True):
    """A method to draw posterior samples in reverse steps, and its settings."""

    steps: int
    guidance_scale: float = 0.0
    keeps_decided: ClassVar[bool] = False
    """Whether tokens decided before the first step stay unchanged. Editing requires it."""
    decodes_tokens: ClassVar[bool] = True
    """Whether :meth:`decoded` needs nothing of the last step but its tokens."""
    needs_denoiser: ClassVar[Denoiser | None] = None
    """The kind of denoising prior that it needs, if any."""
    beyond_borders: ClassVar[bool] = False
    """Whether it restores blurred uploads beyond their borders, from where some light came;
    that is cut off in the end. It needs a prior for grids of any size.
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
        """Standard deviation (B, H, W) of the error of the brightness that is to be expected of the
        last step's pictures; None if it is not known.
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
        """What a run costs beside its :attr:`decodes` and the prior, in decoder evaluations with
        their gradient: an estimate.
        """
        return 0

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """Fields with which a reverse step takes about ``decodes`` decoder evaluations."""
        return {}

    def for_samples(self, samples: int) -> Self:
        """These settings for a batch with so many samples of each measurement. By themselves,
        samplers take a batch for samples of one measurement, which must differ.
        """
        return self

    @classmethod
    def preset(cls) -> dict[str, Any]:
        """Fields that this class sets differently from its parent. Neither a prior's recommendation
        nor a benchmark's settings override them.
        """
        return {}

    @classmethod
    def shared(cls, config: APSConfig) -> dict[str, Any]:
        """Fields of ``config`` that have the same meaning in this sampler."""
        return {"guidance_scale": config.guidance_scale}

    @classmethod
    def like(cls, config: APSConfig, changes: Mapping[str, Any] | None = None) -> Self:
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
