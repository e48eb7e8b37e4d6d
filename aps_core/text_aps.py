"""Anchored posterior sampling of text: Algorithm 1 inside Dream's loop (paper appendix, section "Question Answering").

A reward model takes the place of decoder and measurement error: in every reverse step the masked
tokens' logits ``phi`` climb its reward by M Adam steps, through the expected embedding with a straight-through
argmax. Dream's own filtering and confidence then choose the anchors, so that the masking schedule stays the
baseline's. Without a reward, or with M = 0, this *is* Dream's ``diffusion_generate``.

Shapes: B rows, P prompt tokens, L answer tokens, S = P + L, V vocabulary, N masked tokens of all rows together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from aps_core.errors import SamplingDiverged
from aps_core.text_config import TextConfig
from aps_core.text_sampling import TextStep, TextStepHook, diffusion_generate
from aps_core.types import SamplerState, TextPrior

if TYPE_CHECKING:
    from aps_core.rewards import RewardSpec
    from aps_core.rewards.language_model import RewardModel


@dataclass(frozen=True)
class TextReward:
    """A reward model, what is read from it, and the prompt whose answer it scores."""

    model: RewardModel
    spec: RewardSpec
    prompt: str

    def __call__(self, ids_BL: Tensor, masked_BL: Tensor, phi_NV: Tensor) -> Tensor:
        """Reward (B,) of the answer whose masked tokens are the likeliest under softmax(phi)."""
        answer = self.model.alignment.soft_answer(ids_BL, masked_BL, phi_NV, self.model.end)  # lines 8, 10
        return self.spec.score(self.model, self.prompt, answer)  # lines 9, 11-13

    @torch.no_grad()
    def of(self, ids_BL: Tensor) -> Tensor:
        """Reward (B,) of a finished answer."""
        nothing_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
        return self(ids_BL, nothing_BL, torch.zeros(0, len(self.model.alignment.index_V), device=ids_BL.device))


def sample_text_aps(
    prior: TextPrior,
    prompt_BP: Tensor,
    config: TextConfig,
    *,
    generator: Generator,
    reward: TextReward | None = None,
    on_step: TextStepHook | None = None,
    resume: SamplerState | None = None,
) -> Tensor:
    """Answers a prompt, guided by ``reward``; returns the ids of prompt and answer (B, S).

    Every random draw comes from ``generator``, and guidance draws nothing: a guided and an unguided run of
    one seed differ by the tilt alone.

    Raises:
        SamplingCancelled: ``on_step`` returned False.
        SamplingDiverged: the reward is not finite.
    """
    curve: list[float] = []

    def tilt(step: int, ids_BS: Tensor, logits_BSV: Tensor) -> Tensor:
        curve.clear()
        if reward is None or config.inner_steps == 0:
            return logits_BSV
        answer = slice(prompt_BP.shape[1], None)
        masked_BL = ids_BS[:, answer] == prior.mask_id
        phi_NV, rewards = quantized_expectation(logits_BSV[:, answer][masked_BL], ids_BS[:, answer], masked_BL, reward, config)
        curve.extend(rewards)
        logits_BSV = logits_BSV.clone()
        logits_BSV[:, answer][masked_BL] = phi_NV
        return logits_BSV

    def hook(info: TextStep) -> bool | None:
        return on_step(replace(info, reward_curve=list(curve))) if on_step is not None else None

    return diffusion_generate(prior, prompt_BP, config, generator=generator, logits_hook=tilt, on_step=hook, resume=resume)


def quantized_expectation(prior_NV: Tensor, ids_BL: Tensor, masked_BL: Tensor, reward: TextReward, config: TextConfig) -> tuple[Tensor, list[float]]:
    """Lines 7-15 for text: the masked tokens' logits after M Adam steps, and the reward before each of them (mean over rows).

    Decided tokens are read as they are, so only the N masked rows carry gradients, and Adam starts
    afresh in every reverse step.
    """
    if len(prior_NV) == 0:  # the model may reveal everything early
        return prior_NV, []
    rewards: list[Tensor] = []  # stays on the device until the end
    phi_NV = prior_NV.clone().requires_grad_()
    adam = torch.optim.Adam([phi_NV], lr=config.learning_rate, fused=True)
    with torch.enable_grad():
        for _ in range(config.inner_steps):  # line 7
            reward_B = reward(ids_BL, masked_BL, phi_NV)  # lines 8-13
            rewards.append(reward_B.detach().mean())
            adam.zero_grad()
            (-reward_B.sum()).backward()
            adam.step()  # line 14
    curve: list[float] = torch.stack(rewards).tolist()
    if not math.isfinite(curve[-1]):
        raise SamplingDiverged(f"The reward became {curve[-1]}; lower the learning rate ({config.learning_rate}).")
    return phi_NV.detach(), curve
