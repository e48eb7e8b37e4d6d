"""A prior resident on a device, with everything a task needs around it: one class for pictures, one
for text.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

import aps_core
from aps_core.aps import sample_aps
from aps_core.checkpoints import checkpoint_cache
from aps_core.errors import InvalidSpec
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.objectives.perceptual import Features, perceptual_features
from aps_core.operators import Bound
from aps_core.priors import ImagePriorSpec, PriorSpec, TextModels, TextPriorSpec
from aps_core.sampling.config import APSConfig
from aps_core.tasks.base import Inputs, TaskSpec, spec_digest
from aps_core.text.aps import TextReward, sample_text_aps
from aps_core.text.config import TextConfig
from aps_core.types import BoundOperator, Grid, Objective, Prior

if TYPE_CHECKING:
    from aps_core.objectives.style import StyleDescriptor


class Engine(ABC):
    """Holds one prior; tasks run on it one at a time."""

    spec: PriorSpec

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @classmethod
    def load(cls, prior: str = "embedded", device: str = "cpu", threads: int | None = None) -> Self:
        """Loads a prior's weights. ``threads``: CPU threads, default every core this process may
        use.

        Raises:
            InvalidSpec: there is no prior of that name, or it is not of this engine's kind.
            WeightsMissing, WeightsInvalid: its files are absent or damaged.
        """
        spec = PriorSpec.named(prior)(type=prior)
        if device == "cpu":
            torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
        be_deterministic()
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
            raise InvalidSpec(f"The prior '{prior}' makes something else than this task does.")
        return engine

    def fingerprint(self, spec: TaskSpec, inputs: Inputs) -> str:
        """Equal for runs that give the same tokens: spec, pictures, weights' identity, device type,
        threads, versions.
        """
        return hashlib.sha256(
            f"{spec_digest(spec)}\n{json.dumps(self.origin(inputs), sort_keys=True)}".encode()
        ).hexdigest()

    def origin(self, inputs: Inputs) -> dict[str, Any]:
        """What the tokens depend on besides the spec, as JSON: pictures and weights by hash, device
        type, threads, versions.
        """
        return {
            "inputs": inputs.digests(),
            "weights": self.spec.identity(),
            "device": self.device.type,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "aps": aps_core.__version__,
        }

    @abstractmethod
    def seconds_per_token(self) -> float:
        """Measures this device: the canary of a fresh worker, and the unit of
        :meth:`TaskSpec.work`.
        """


class ImageEngine(Engine):
    """A prior over pictures."""

    def __init__(self, spec: ImagePriorSpec, prior: Prior, device: torch.device) -> None:
        super().__init__(device)
        self.spec: ImagePriorSpec = spec
        self.prior = prior
        self.stride = prior.tokenizer.stride
        self._features: dict[str, Features] = {}
        self._csd: StyleDescriptor | None = None

    def grid(self, height: int, width: int) -> Grid:
        """Tokens down and across that cover a picture of this size in pixels."""
        return -(-height // self.stride), -(-width // self.stride)

    def measurement_objective(
        self, operator: BoundOperator, y_CHW: Tensor, sigma: float | Tensor, config: APSConfig
    ) -> MeasurementObjective:
        """Data term and, when weighted, the perceptual term of the extractor the settings name.

        Raises:
            WeightsMissing, WeightsInvalid: the extractor's file is absent or damaged.
        """
        features = None
        if config.perceptual_weight:
            kind = config.settled().perceptual
            if kind not in self._features:
                self._features[kind] = perceptual_features(kind, self.prior.tokenizer, self.device)
            features = self._features[kind]
        return MeasurementObjective(
            operator, y_CHW, sigma, config.norm, features, config.perceptual_weight
        )

    def padded(self, x_CHW: Tensor) -> Tensor:
        """The picture with its last row and column repeated until it fills whole tokens."""
        height, width = (-size % self.stride for size in x_CHW.shape[1:])
        return torch.nn.functional.pad(x_CHW[None], (0, width, 0, height), mode="replicate")[0]

    def csd_objective(self, reference_CHW: Tensor) -> Objective:
        """Cosine distance of CSD style vectors to a reference's; the network is loaded once.

        Raises:
            WeightsMissing, WeightsInvalid: its weights are absent or damaged.
        """
        from aps_core.objectives.style import StyleObjective, load_csd

        if self._csd is None:
            self._csd = load_csd(checkpoint_cache.path("csd-vit-l"), self.device)
        return StyleObjective(self._csd, reference_CHW)

    def seconds_per_token(self) -> float:
        """Measures the cost of one inner step with the recommended terms of the loss, in seconds
        per token: the canary of a fresh worker.
        """
        height, width = self.spec.native_size
        grid = self.grid(height, width)
        settings = APSConfig(inner="fixed").with_recommended(self.spec.recommended)
        objective = self.measurement_objective(
            Bound(lambda x: x),
            torch.zeros(3, height, width, device=self.device),
            0.0,
            settings,
        )

        def seconds(inner: int) -> float:
            config = settings.model_copy(update={"steps": 1, "inner_steps": inner})
            started = time.perf_counter()
            sample_aps(
                self.prior,
                objective,
                config,
                grid=grid,
                generator=torch.Generator(self.device).manual_seed(0),
            )
            return time.perf_counter() - started

        seconds(2)  # warms caches
        # the difference leaves out what a step costs once: the prior's forward and the last decode
        return max(1e-9, (seconds(10) - seconds(2)) / (8 * grid[0] * grid[1]))


class TextEngine(Engine):
    """A prior over text and its reward model."""

    def __init__(self, spec: TextPriorSpec, models: TextModels, device: torch.device) -> None:
        super().__init__(device)
        self.spec: TextPriorSpec = spec
        self.prior, self.reward = models.prior, models.reward

    def seconds_per_token(self) -> float:
        """Measures the cost of one guided reverse step at the paper's M = 3, in seconds per answer
        token.
        """
        config = TextConfig(max_new_tokens=32, steps=4)
        reward = TextReward(self.reward, self.spec.reward, "canary")
        prompt_BP = torch.tensor([self.prior.encode("canary")], device=self.device)

        def seconds() -> float:
            started = time.perf_counter()
            sample_text_aps(
                self.prior,
                prompt_BP,
                config,
                generator=torch.Generator(self.device).manual_seed(0),
                reward=reward,
            )
            return time.perf_counter() - started

        seconds()  # warms caches
        return seconds() / (config.steps * config.max_new_tokens)


def be_deterministic() -> None:
    """Makes a seed reproduce a run bit for bit on the same hardware, build and thread count."""
    # lets deterministic CUDA matmuls work
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a debugging aid that writes every new tensor twice
