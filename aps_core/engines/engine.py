"""A prior loaded on a device with everything a task needs: one class for pictures, one for text."""

from __future__ import annotations

import builtins
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

import aps_core
from aps_core.checkpoints import checkpoint_cache
from aps_core.errors import InvalidSpec
from aps_core.imaging.resampling import edge_pad
from aps_core.losses import LossSpec
from aps_core.losses.measurement import MeasurementLoss
from aps_core.objectives.perceptual import perceptual_features
from aps_core.operators import Bound
from aps_core.priors import ImagePriorSpec, PriorSpec, TextModels, TextPriorSpec
from aps_core.priors.base import Preset
from aps_core.runtime.precision import fast_dtype
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig
from aps_core.sampling import driver
from aps_core.style_measures.base import Network
from aps_core.text.chat import Chat, chat_of
from aps_core.text.config import TextConfig
from aps_core.text.rewards import RewardSpec
from aps_core.types import BoundOperator, Features, Grid, Objective, Prior

if TYPE_CHECKING:
    from aps_core.numerics.likelihood import Noise
    from aps_core.text.aps import TextReward
    from aps_core.text.rewards.network import Kind, RewardNetwork

CANARY_STEPS = 3
"""Reverse steps of the run that measures a device's speed."""


class Engine(ABC):
    """Holds one prior; tasks run on it one at a time."""

    spec: PriorSpec

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @classmethod
    def load(cls, prior: str = "embedded", device: str = "cpu") -> Self:
        """Loads a prior's weights without changing process-wide settings; see
        :mod:`aps_core.runtime.process` for reproducible runs.

        Raises:
            InvalidSpec: no prior has that name, or it is of another kind than this engine.
            WeightsMissing, WeightsInvalid: its files are absent or damaged.
        """
        spec = PriorSpec.named(prior)(type=prior)
        where = torch.device(device)
        engine: Engine
        match spec:
            case ImagePriorSpec():
                engine = ImageEngine(spec, spec.load(where), where)
            case TextPriorSpec():
                engine = TextEngine(spec, spec.load(where), where)
            case _:
                raise TypeError(
                    f"{type(spec).__qualname__} must derive from ImagePriorSpec or TextPriorSpec."
                )
        if not isinstance(engine, cls):
            raise InvalidSpec(f"The prior '{prior}' does not produce this task's output type.")
        return engine

    def origin(self) -> dict[str, Any]:
        """Everything the tokens depend on besides spec and pictures, as JSON: weights by hash,
        device type, the number format it computes fastest, threads, versions.
        """
        return {
            "weights": self.spec.identity(),
            "device": self.device.type,
            "format": str(fast_dtype(self.device)).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "aps": aps_core.__version__,
        }

    def fallbacks(self) -> list[str]:
        """Components that run slower than planned on this machine, and why; copied to results."""
        return []

    @abstractmethod
    def seconds_per_token(self) -> float:
        """Measures this device in the unit of :meth:`TaskSpec.work`. A new worker uses it as its
        self-test.
        """


class ImageEngine(Engine):
    """A prior over pictures."""

    def __init__(self, spec: ImagePriorSpec, prior: Prior, device: torch.device) -> None:
        super().__init__(device)
        self.spec: ImagePriorSpec = spec
        self.prior = prior
        self.stride = prior.tokenizer.stride
        self._features: dict[str, Features] = {}
        self._networks: dict[str, Any] = {}

    def grid(self, height: int, width: int) -> Grid:
        """Rows and columns of tokens that cover a picture of this size in pixels."""
        return -(-height // self.stride), -(-width // self.stride)

    def measurement_objective(
        self, operator: BoundOperator, y: Tensor, sigma: Noise, loss: LossSpec
    ) -> Objective:
        """Binds ``loss`` to one measurement (C, H, W), or to several (B, C, H, W).

        Raises:
            WeightsMissing, WeightsInvalid: a feature extractor's file is absent or damaged.
        """
        return loss.bind(operator, y if y.ndim == 4 else y[None], sigma, self.features)

    def features(self, kind: str) -> Features:
        """A feature extractor by name, loaded once; see
        :func:`aps_core.objectives.perceptual.perceptual_features`.
        """
        if kind not in self._features:
            self._features[kind] = perceptual_features(kind, self.prior.tokenizer, self.device)
        return self._features[kind]

    def fallbacks(self) -> list[str]:
        """Includes the tokenizer's reason, if it runs slower than its plan."""
        fallback = getattr(self.prior.tokenizer, "fallback", None)
        return [fallback] if fallback else []

    def padded(self, x_CHW: Tensor) -> Tensor:
        """Repeats the picture's last row and column until it fills whole tokens."""
        height, width = (-size % self.stride for size in x_CHW.shape[1:])
        return edge_pad(x_CHW[None], height, width)[0]

    def network(self, name: str, load: Callable[[], Network]) -> Network:
        """A network beside the prior, loaded once; see
        :class:`aps_core.style_measures.base.NetworkCache`.
        """
        if name not in self._networks:
            self._networks[name] = load()
        found: Network = self._networks[name]
        return found

    def seconds_per_token(self) -> float:
        """Seconds per token of one inner step with the recommended loss."""
        height, width = self.spec.native_size
        grid = self.grid(height, width)
        loss = MeasurementLoss().with_recommended(self.spec.recommended_loss.get("measurement", {}))
        objective = self.measurement_objective(
            Bound(lambda x: x),
            torch.zeros(3, height, width, device=self.device),
            0.0,
            loss,
        )

        inner, seconds = 4, list[float]()
        driver.sample(
            self.prior,
            objective,
            APSConfig(steps=CANARY_STEPS, inner_steps=inner),
            grid=grid,
            generator=torch.Generator(self.device).manual_seed(0),
            on_step=lambda info: seconds.append(info.seconds - info.prior_seconds),
        )
        return _steady(seconds) / (inner * grid[0] * grid[1])


class GivenPrior(ImagePriorSpec):
    """Stands for a prior that a caller of the library brings: nothing is known of it but what it
    computes.
    """

    native_size = (0, 0)
    stride = 1

    @classmethod
    def recommended_for(
        cls,
        sampler: builtins.type[SamplerSpec],
        changes: Mapping[str, Any] | None = None,
        preset: Preset = "balanced",
    ) -> dict[str, Any]:
        """Nothing: samplers keep their own defaults."""
        return {}

    @classmethod
    def samplers(cls) -> list[str]:
        """All; those that need a denoiser ask the prior itself."""
        return list(SamplerSpec.family)

    def token_bytes(self, device: str) -> int:
        """Unknown."""
        return 0

    def load(self, device: torch.device) -> Prior:
        """Always fails: the caller has loaded it."""
        raise InvalidSpec("A prior of the caller is not loaded by name.")


class TextEngine(Engine):
    """A prior over text and its reward model."""

    def __init__(self, spec: TextPriorSpec, models: TextModels, device: torch.device) -> None:
        super().__init__(device)
        self.spec: TextPriorSpec = spec
        self.prior = models.prior
        self.reward = models.reward
        self._own = {model.kind: model for model in (models.reward, *models.also)}
        self._others: dict[tuple[str, Kind], RewardNetwork] = {}

    def reward_model(self, reward: RewardSpec) -> RewardNetwork:
        """The model that a job's reward reads. One model besides the prior's own is kept loaded.

        Raises:
            InvalidSpec: it is a language model where a classifier is needed, or the reverse.
            WeightsMissing, WeightsInvalid: its files are absent or damaged.
        """
        from aps_core.text.rewards.loading import load_reward

        model = self._own.get(reward.kind, self.reward)
        if reward.model is not None and reward.model not in self.spec.weights:
            if (key := (reward.model, reward.kind)) not in self._others:
                self._others.clear()  # before loading, to free its memory
                folder = checkpoint_cache.path(reward.model)
                self._others[key] = load_reward(
                    folder, self.prior, self.device, self.prior.model.dtype, reward.kind
                )
            model = self._others[key]
        if model.kind != reward.kind:
            raise InvalidSpec(
                f"The reward '{reward.type}' needs a {reward.kind.replace('_', ' ')}, but"
                f" '{reward.model or self.spec.type}' is a {model.kind.replace('_', ' ')}. Name"
                " another in reward.model."
            )
        return model

    def text_reward(self, reward: RewardSpec, chat: Chat) -> TextReward:
        """A job's reward; raises as :meth:`reward_model`."""
        from aps_core.text.aps import TextReward

        return TextReward(self.reward_model(reward), reward, chat)

    def seconds_per_token(self) -> float:
        """Seconds per answer token of one guided reverse step with the paper's M = 3."""
        from aps_core.text.aps import sample_text_aps

        config = TextConfig(max_new_tokens=32, steps=CANARY_STEPS)
        times = [time.perf_counter()]
        sample_text_aps(
            self.prior,
            torch.tensor([self.prior.encode("canary")], device=self.device),
            config,
            generator=torch.Generator(self.device).manual_seed(0),
            reward=self.text_reward(self.spec.resolved_reward(None), chat_of("canary")),
            on_step=lambda _: times.append(time.perf_counter()),
        )
        seconds = [end - start for start, end in pairwise(times)]
        return _steady(seconds) / config.max_new_tokens


def _steady(seconds: Sequence[float]) -> float:
    """Seconds of a reverse step after the first. The first step compiles, chooses kernels and
    captures a CUDA graph, which the others replay.
    """
    return median(seconds[1:])
