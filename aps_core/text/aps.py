"""Anchored posterior sampling of text: Algorithm 1 inside Dream's loop (paper appendix, section
"Question Answering").

A reward model replaces decoder and measurement error. In every reverse step, M Adam steps on the
masked tokens' logits ``phi`` increase its reward. What it reads at undecided positions is the
relaxation's choice (:mod:`aps_core.text.relaxations`); the gradient is that of the expected
embedding. Dream's own filtering and confidence then choose the anchors, so the masking schedule
equals the baseline's. Without a reward, or with M = 0, this is exactly Dream's
``diffusion_generate``.

Shapes: B rows, P prompt tokens, L answer tokens, S = P + L, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from aps_core.errors import SamplingDiverged
from aps_core.sampling.cuda_graph import captured
from aps_core.sampling.inner_watch import UNWATCHED, InnerWatch
from aps_core.text.chat import Chat
from aps_core.text.config import TextConfig
from aps_core.text.sampling import TextStep, TextStepHook, diffusion_generate
from aps_core.types import InnerHook, SamplerState, TextPrior

if TYPE_CHECKING:
    from aps_core.text.rewards import RewardSpec
    from aps_core.text.rewards.network import RewardNetwork


STEP_SEEDS = 1_000_003
"""Distance of seeds between runs; larger than any number of steps."""


@dataclass(frozen=True)
class TextReward:
    """A reward model, its scoring method, and the chat whose answer it scores."""

    model: RewardNetwork
    spec: RewardSpec
    chat: Chat

    def __call__(
        self,
        ids_BL: Tensor,
        masked_BL: Tensor,
        phi_BLV: Tensor,
        config: TextConfig,
        uniform_BL: Tensor | None = None,
    ) -> Tensor:
        """Reward (B,) of an unfinished answer. ``uniform_BL``: random numbers in [0, 1) that draw
        the tokens of the relaxation; None reads the likeliest ones.
        """
        # lines 8, 10
        answer = self.model.alignment.soft_answer(ids_BL, masked_BL, phi_BLV, config, uniform_BL)
        return self.spec.score(self.model, self.chat, answer)  # lines 9, 11-13

    @torch.no_grad()
    def of(self, ids_BL: Tensor, texts: Sequence[str]) -> Tensor:
        """Reward (B,) of finished answers, given as ids and as text."""
        answer = self.model.alignment.answer(ids_BL)
        return self.spec.final(self.model, self.chat, answer, texts)


@dataclass(frozen=True)
class BatchReward:
    """The rewards of several prompts in one batch; each scores as many consecutive rows."""

    each: tuple[TextReward, ...]

    def __call__(
        self,
        ids_BL: Tensor,
        masked_BL: Tensor,
        phi_BLV: Tensor,
        config: TextConfig,
        uniform_BL: Tensor | None = None,
    ) -> Tensor:
        """Reward (B,) of unfinished answers; see :class:`TextReward`."""
        count = len(self.each)
        uniform = [None] * count if uniform_BL is None else uniform_BL.chunk(count)
        parts = zip(
            self.each,
            ids_BL.chunk(count),
            masked_BL.chunk(count),
            phi_BLV.chunk(count),
            uniform,
            strict=True,
        )
        return torch.cat(
            [reward(ids, masked, phi, config, drawn) for reward, ids, masked, phi, drawn in parts]
        )

    def of(self, ids_BL: Tensor, texts: Sequence[str]) -> Tensor:
        """Reward (B,) of finished answers, given as ids and as text."""
        rows = len(texts) // len(self.each)
        return torch.cat(
            [
                reward.of(ids, texts[i * rows : (i + 1) * rows])
                for i, (reward, ids) in enumerate(
                    zip(self.each, ids_BL.chunk(len(self.each)), strict=True)
                )
            ]
        )


def sample_text_aps(
    prior: TextPrior,
    prompt_BP: Tensor,
    config: TextConfig,
    *,
    generator: Generator,
    reward: TextReward | BatchReward | None = None,
    attention_BP: Tensor | None = None,
    on_step: TextStepHook | None = None,
    on_inner: InnerHook | None = None,
    resume: SamplerState | None = None,
    graph: bool | None = None,
) -> Tensor:
    """Answers prompts, guided by ``reward``; returns the ids of prompt and answer (B, S).

    ``attention_BP`` is 0 at padding before shorter prompts; None without padding.
    Every random draw comes from ``generator``. Guidance draws its tokens from a generator of its
    own, seeded with that of ``generator`` and the step. A guided and an unguided run with the same
    seed therefore differ only by the optimised logits. ``graph`` replays the prior's forward pass
    and the inner steps as CUDA graphs (default: on CUDA).

    Raises:
        SamplingCancelled: ``on_step`` or ``on_inner`` returned False.
        SamplingDiverged: the reward is not finite.
    """
    curve: list[list[float]] = []
    prompt, inner = (
        prompt_BP.shape[1],
        RewardAscent(reward, config, graph) if reward is not None and config.inner_steps else None,
    )

    def tilt(step: int, ids_BS: Tensor, logits_BSV: Tensor) -> Tensor:
        curve.clear()
        masked_BL = ids_BS[:, prompt:] == prior.mask_id
        if inner is None or not bool(masked_BL.any()):  # all tokens may be decided early
            return logits_BSV
        watch = InnerWatch(on_inner, step + 1, config.steps)
        noise = torch.Generator(generator.device)
        noise.manual_seed((generator.initial_seed() * STEP_SEEDS + step) % 2**63)
        phi_BLV, rewards = inner.run(
            logits_BSV[:, prompt:], ids_BS[:, prompt:], masked_BL, noise, watch
        )
        curve.extend(rewards)
        return torch.cat(
            [
                logits_BSV[:, :prompt],
                torch.where(masked_BL[..., None], phi_BLV, logits_BSV[:, prompt:]),
            ],
            dim=1,
        )

    def hook(info: TextStep) -> bool | None:
        return on_step(replace(info, rewards_MB=list(curve))) if on_step is not None else None

    return diffusion_generate(
        prior,
        prompt_BP,
        config,
        generator=generator,
        attention_BP=attention_BP,
        logits_hook=tilt,
        on_step=hook,
        resume=resume,
        graph=graph,
        independent=True,
    )


class RewardAscent:
    """Lines 7-15 for text: M Adam steps on the masked tokens' logits, restarted in every reverse
    step.

    All tensors keep shape and address for the whole run, so that on CUDA one graph is used for all
    reverse steps. Rows of decided tokens are included without effect.
    """

    phi_BLV: Tensor
    adam: torch.optim.Adam
    reward_B: Tensor

    def __init__(
        self, reward: TextReward | BatchReward, config: TextConfig, graph: bool | None = None
    ) -> None:
        self.reward = reward
        self.config = config
        self.graph = graph
        self.tensors: dict[str, Tensor] = {}
        self.replay: Callable[[], None] | None = None

    def run(
        self,
        prior_BLV: Tensor,
        ids_BL: Tensor,
        masked_BL: Tensor,
        noise: Generator,
        watch: InnerWatch = UNWATCHED,
    ) -> tuple[Tensor, list[list[float]]]:
        """Logits after M steps from the prior's logits, and the reward of every row before each
        step. ``noise`` draws the relaxation's tokens.

        Raises:
            SamplingCancelled: the hook of ``watch`` returned False.
            SamplingDiverged: the reward is not finite.
        """
        self.begin(prior_BLV, ids_BL, masked_BL)
        if self.replay is None:
            self.replay = (
                captured(self)
                if (prior_BLV.is_cuda if self.graph is None else self.graph)
                else self
            )
            self.begin(prior_BLV, ids_BL, masked_BL)  # warm-up before capture changes the logits
        steps = self.config.inner_steps
        rewards_MB = prior_BLV.new_zeros(steps, len(ids_BL), dtype=torch.float32)
        for step in range(steps):  # line 7
            self.tensors["uniform"].uniform_(generator=noise)
            self.replay()
            rewards_MB[step] = self.reward_B
            watch(step + 1, steps, rewards_MB[step].mean())
        curve: list[list[float]] = rewards_MB.tolist()  # the only synchronisation with the device
        if not all(math.isfinite(reward) for reward in curve[-1]):
            raise SamplingDiverged(
                f"The reward became {curve[-1]}; lower the learning rate"
                f" ({self.config.learning_rate})."
            )
        return self.phi_BLV.detach(), curve

    def begin(self, prior_BLV: Tensor, ids_BL: Tensor, masked_BL: Tensor) -> None:
        """Starts a reverse step from the prior's logits and resets Adam."""
        fresh = {"phi": prior_BLV, "ids": ids_BL, "masked": masked_BL}
        if self.tensors:
            for name, value in fresh.items():
                self.tensors[name].data.copy_(value)
            for value in self.adam.state[self.phi_BLV].values():
                value.zero_()
            return
        self.tensors = {name: value.clone() for name, value in fresh.items()}
        self.tensors["uniform"] = prior_BLV.new_zeros(ids_BL.shape)
        self.phi_BLV = self.tensors["phi"].requires_grad_()
        self.adam = torch.optim.Adam(
            [self.phi_BLV],
            lr=self.config.learning_rate,
            fused=True,
            capturable=self.phi_BLV.is_cuda,
        )

    def __call__(self) -> None:
        """Evaluates the reward and takes one Adam step."""
        with torch.enable_grad():
            # lines 8-13
            reward_B = self.reward(
                self.tensors["ids"],
                self.tensors["masked"],
                self.phi_BLV,
                self.config,
                self.tensors["uniform"],
            )
            (self.phi_BLV.grad,) = torch.autograd.grad(-reward_B.sum(), self.phi_BLV)
        self.reward_B = reward_B.detach()
        self.adam.step()  # line 14
