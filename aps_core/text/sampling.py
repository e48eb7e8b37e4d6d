"""Dream's ``diffusion_generate``: iterative unmasking of an answer after a prompt.

Follows the release (``generation_utils.py`` of ``Dream-org/Dream-v0-Instruct-7B``), with the same
parameters; every random draw comes from an explicit generator. Two behaviours of the release are
kept. A model may predict the mask token itself, so masks can remain. In a batch, the *mean* number
of masks determines how many tokens each row reveals, so a row with fewer masks can lose decided
tokens. This does not affect rows sampled one at a time.

Shapes: B rows, S sequence (prompt and answer), V vocabulary, N masked positions of all rows
together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from aps_core.errors import InvalidSpec, SamplingCancelled
from aps_core.sampling.cuda_graph import captured
from aps_core.text.config import TextConfig
from aps_core.types import SamplerState, TextPrior

FIXED_POINT = 2.0**40
"""Integer that represents probability 1 when probabilities are summed as integers; finer than
float32 at 150,000 tokens.
"""

CANDIDATES = 256
"""Number of most likely tokens that are sorted before resorting to the whole vocabulary."""

LogitsHook = Callable[[int, Tensor, Tensor], Tensor]
"""Maps (step, ids (B, S), logits (B, S, V)) to new logits before filtering, as in Dream's
release.
"""


@dataclass(frozen=True)
class TextStep:
    """Argument of the step hook, called after each reverse step."""

    state: SamplerState
    """``z_BL`` holds the ids of prompt and answer, with the prior's mask id for masks."""
    total: int
    """Reverse steps of the whole run."""
    decided_BS: Tensor
    """True where a token was decided in this step."""
    seconds: float
    """Wall time of this step in seconds."""
    prior_seconds: float
    """Part of ``seconds`` spent in the prior's forward pass."""
    reward_curve: list[float] = field(default_factory=list)
    """Reward at every inner iteration, mean over the batch; empty without guidance."""


TextStepHook = Callable[[TextStep], bool | None]
"""Called after every reverse step; returning False cancels the run."""


def diffusion_generate(
    prior: TextPrior,
    prompt_BP: Tensor,
    config: TextConfig,
    *,
    generator: Generator,
    attention_BP: Tensor | None = None,
    logits_hook: LogitsHook | None = None,
    on_step: TextStepHook | None = None,
    resume: SamplerState | None = None,
    graph: bool | None = None,
) -> Tensor:
    """Appends ``config.max_new_tokens`` masks to ``prompt_BP``, fills them, and returns ids (B, S).

    ``attention_BP`` is 0 at padding before a prompt. A run resumed from a :class:`SamplerState`
    gives the same tokens as an uninterrupted one. ``graph`` replays the prior's forward pass as a
    CUDA graph (default: on CUDA, without padding).

    Raises:
        InvalidSpec: the prompt has no token.
        SamplingCancelled: ``on_step`` returned False.
    """
    if prompt_BP.shape[1] == 0:
        raise InvalidSpec("The prompt has no tokens; the answer needs at least one before it.")
    ids_BS = torch.nn.functional.pad(prompt_BP, (0, config.max_new_tokens), value=prior.mask_id)
    attention_BS = (
        None
        if attention_BP is None
        else torch.nn.functional.pad(attention_BP, (0, config.max_new_tokens), value=1)
    )
    first = 0
    if resume is not None:
        ids_BS, first = resume.z_BL.to(generator.device), resume.step
        generator.set_state(resume.generator_state)
    times = torch.linspace(1, config.eps, config.steps + 1)
    forward = PriorForward(prior, attention_BS, graph)
    for step in range(first, config.steps):
        started = time.perf_counter()
        logits_BSV = forward(ids_BS)
        prior_seconds = time.perf_counter() - started
        if logits_hook is not None:
            logits_BSV = logits_hook(step, ids_BS, logits_BSV)
        share = 1 - times[step + 1] / times[step] if step < config.steps - 1 else torch.tensor(1.0)
        next_BS = (_reveal_at_random if config.alg == "origin" else _reveal_most_trusted)(
            ids_BS, logits_BSV, share, prior.mask_id, config, generator
        )
        decided_BS = (ids_BS == prior.mask_id) & (next_BS != prior.mask_id)
        ids_BS = next_BS
        state = SamplerState(step + 1, ids_BS, generator.get_state())
        if (
            on_step is not None
            and on_step(
                TextStep(
                    state, config.steps, decided_BS, time.perf_counter() - started, prior_seconds
                )
            )
            is False
        ):
            raise SamplingCancelled(f"Stopped after reverse step {step + 1} of {config.steps}.")
    return ids_BS


class PriorForward:
    """The prior's forward pass with fixed shapes for a whole run; a CUDA graph replaces hundreds of
    launches by one.

    Synchronises with the device, so that it can be timed.
    """

    ids_BS: Tensor
    logits_BSV: Tensor

    def __init__(
        self, prior: TextPrior, attention_BS: Tensor | None, graph: bool | None = None
    ) -> None:
        self.prior = prior
        self.attention_BS = attention_BS
        self.graph = graph
        self.replay: Callable[[], None] | None = None

    def __call__(self, ids_BS: Tensor) -> Tensor:
        """Logits (B, S, V). The next call overwrites them."""
        # with padding, the prior reads the mask on the host, which a graph does not allow
        if self.attention_BS is not None or not (
            ids_BS.is_cuda if self.graph is None else self.graph
        ):
            logits_BSV = self.prior.logits(ids_BS, self.attention_BS)
        else:
            if self.replay is None:
                self.ids_BS = ids_BS.clone()
                self.replay = captured(self._run)
            self.ids_BS.copy_(ids_BS)
            self.replay()
            logits_BSV = self.logits_BSV
        if ids_BS.is_cuda:
            torch.cuda.synchronize()
        return logits_BSV

    def _run(self) -> None:
        self.logits_BSV = self.prior.logits(self.ids_BS)


def filtered(logits_NV: Tensor, config: TextConfig) -> Tensor:
    """Applies temperature, then nucleus, then top-k. Removed tokens get the minimum of the dtype.

    Only the most likely tokens are sorted. If they do not determine the result (ties, or a flat
    distribution), the whole vocabulary is sorted. The result equals a full sort in both cases.
    """
    if config.temperature > 0:
        logits_NV = logits_NV / config.temperature
    nucleus = config.top_p is not None and config.top_p < 1
    if not nucleus and config.top_k is None:
        return logits_NV
    # fixed point: sums of integers on a GPU do not depend on the order, sums of floats do
    share_NV = (logits_NV.softmax(-1) * FIXED_POINT).long() if nucleus else None
    likeliest = min(max(CANDIDATES, 2 * (config.top_k or 0)), logits_NV.shape[-1])
    value_NC, token_NC = _ranked(*logits_NV.topk(likeliest, dim=-1))
    kept_NC = _kept(value_NC, token_NC, share_NV, config)
    # a token as likely as the last candidate could have been another one
    unsettled_NC = kept_NC & (value_NC == value_NC[:, -1:])
    if likeliest < logits_NV.shape[-1] and bool(unsettled_NC.any()):
        value_NC, token_NC = logits_NV.sort(dim=-1, descending=True, stable=True)
        kept_NC = _kept(value_NC, token_NC, share_NV, config)
    lowest = torch.finfo(logits_NV.dtype).min
    return torch.full_like(logits_NV, lowest).scatter(
        -1, token_NC, value_NC.masked_fill(~kept_NC, lowest)
    )


def _ranked(value_NC: Tensor, token_NC: Tensor) -> tuple[Tensor, Tensor]:
    """Candidates by decreasing logit, then increasing id, equal to a stable sort of the
    vocabulary.
    """
    token_NC, by_id_NC = token_NC.sort(dim=-1)
    value_NC, order_NC = value_NC.gather(-1, by_id_NC).sort(dim=-1, descending=True, stable=True)
    return value_NC, token_NC.gather(-1, order_NC)


def _kept(
    value_NC: Tensor, token_NC: Tensor, share_NV: Tensor | None, config: TextConfig
) -> Tensor:
    """Which ranked tokens are kept, including the token that crosses the nucleus and all ties with
    the k-th. ``share`` holds probabilities in fixed point.
    """
    kept_NC = torch.ones_like(value_NC, dtype=torch.bool)
    if share_NV is not None:
        share_NC = share_NV.gather(-1, token_NC)
        kept_NC = share_NC.cumsum(-1) - share_NC <= (config.top_p or 1) * FIXED_POINT
    if config.top_k is not None:
        kept_NC &= value_NC >= value_NC[:, min(config.top_k, value_NC.shape[-1]) - 1, None]
    return kept_NC


def sample_tokens(
    logits_NV: Tensor, config: TextConfig, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Samples a token per row and returns its confidence, both (N,), under the filtered
    distribution with temperature.
    """
    probs_NV = filtered(logits_NV, config).softmax(-1)
    if config.temperature > 0:
        token_N = torch.multinomial(probs_NV, 1, generator=generator)[:, 0]
        confidence_N = probs_NV.gather(-1, token_N[:, None])[:, 0]
    else:
        confidence_N, token_N = probs_NV.max(dim=-1)
    if config.alg == "topk_margin":
        top_N2 = probs_NV.topk(2, dim=-1).values
        confidence_N = top_N2[:, 0] - top_N2[:, 1]
    elif config.alg == "entropy":
        confidence_N = (probs_NV * torch.log(probs_NV + 1e-10)).sum(-1)
    return confidence_N, token_N


def _reveal_at_random(
    ids_BS: Tensor,
    logits_BSV: Tensor,
    share: Tensor,
    mask_id: int,
    config: TextConfig,
    generator: Generator,
) -> Tensor:
    """``origin``: reveals every masked position independently with probability ``share``."""
    masked_BS = ids_BS == mask_id
    token_N = ids_BS[masked_BS]
    chosen_N = torch.rand(token_N.shape, generator=generator, device=ids_BS.device) < float(share)
    token_N[chosen_N] = sample_tokens(logits_BSV[masked_BS][chosen_N], config, generator)[1]
    return ids_BS.masked_scatter(masked_BS, token_N)


def _reveal_most_trusted(
    ids_BS: Tensor,
    logits_BSV: Tensor,
    share: Tensor,
    mask_id: int,
    config: TextConfig,
    generator: Generator,
) -> Tensor:
    """Samples a token for every masked position and keeps the most confident ones; their number is
    a share of the mean number of masks per row.
    """
    masked_BS = ids_BS == mask_id
    confidence_N, token_N = sample_tokens(logits_BSV[masked_BS], config, generator)
    count = int(masked_BS.sum().cpu() / len(ids_BS) * share)
    if count == 0:
        return ids_BS
    confidence_BS = logits_BSV.new_full(ids_BS.shape, -torch.inf).masked_scatter(
        masked_BS, confidence_N
    )
    if config.alg_temp:
        kept_BC = torch.multinomial(
            (confidence_BS / config.alg_temp).softmax(-1), count, generator=generator
        )
    else:
        kept_BC = confidence_BS.topk(count, dim=-1).indices
    drawn_BS = torch.full_like(ids_BS, mask_id).masked_scatter(masked_BS, token_N)
    return ids_BS.scatter(1, kept_BC, drawn_BS.gather(1, kept_BC))
