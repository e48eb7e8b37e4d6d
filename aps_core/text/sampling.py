"""Dream's ``diffusion_generate``: iterative unmasking of an answer after a prompt.

Follows the release (``generation_utils.py`` of ``Dream-org/Dream-v0-Instruct-7B``), with the same
parameters; every random draw comes from an explicit generator. As in the release, a model may
predict the mask token itself, so masks can remain. In a batch, the release reveals a share of the
*mean* number of masks per row, by which a row with fewer masks can lose decided tokens;
``independent`` rows each reveal a share of their own masks.

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
from aps_core.text.blocks import blocks_of
from aps_core.text.config import TextConfig
from aps_core.text.filtering import sample_tokens
from aps_core.text.reuse import Reuse, ReusingForward
from aps_core.types import SamplerState, TextPrior

REFRESHED = "refreshed_ids"
"""Name under which a state carries the ids whose keys and values are reused."""

LEAST_CONFIDENCE = -1e20
"""Below every confidence, and finite after division by any remasking temperature in use."""

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
    rewards_MB: list[list[float]] = field(default_factory=list)
    """Reward of every row at every inner iteration; empty without guidance."""
    reuse: Reuse | None = None
    """Work and error of reused keys and values, since the run's start or resumption; None without
    reuse.
    """


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
    independent: bool = False,
) -> Tensor:
    """Appends ``config.max_new_tokens`` masks to ``prompt_BP``, fills them, and returns ids (B, S).

    ``attention_BP`` is 0 at padding before a prompt. A run resumed from a :class:`SamplerState`
    gives the same tokens as an uninterrupted one. ``graph`` replays the prior's forward pass as a
    CUDA graph (default: on CUDA, without padding). ``independent``: see the module; only matters
    for several rows whose numbers of masks differ.

    Raises:
        InvalidSpec: the prompt has no token, there are more blocks than steps, or the prior cannot
            reuse keys and values.
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
    forward = PriorForward(prior, attention_BS, graph)
    reusing = None
    if config.reuse != "none":
        refreshed_BS = resume.carried[REFRESHED].to(ids_BS.device) if resume else None
        reusing = ReusingForward(prior, config, ids_BS, attention_BS, graph, refreshed_BS)
    schedule = [block for block in blocks_of(config) for _ in range(block.first, block.last)]
    for step, block in enumerate(schedule[first:], start=first):
        started = time.perf_counter()
        logits_BSV = reusing(ids_BS, step, block) if reusing else forward(ids_BS)
        prior_seconds = time.perf_counter() - started
        guided_BSV = logits_hook(step, ids_BS, logits_BSV) if logits_hook else logits_BSV
        share = block.share(step, config.eps)
        masked_BS = (ids_BS == prior.mask_id) & block.mask(
            prompt_BP.shape[1], ids_BS.shape[1], ids_BS.device
        )
        if config.alg == "origin":
            next_BS = _reveal_at_random(ids_BS, guided_BSV, share, masked_BS, config, generator)
        else:
            next_BS = _reveal_most_trusted(
                *(ids_BS, guided_BSV, logits_BSV, share, masked_BS),
                *(prior, config, generator, independent),
            )
        decided_BS = (ids_BS == prior.mask_id) & (next_BS != prior.mask_id)
        ids_BS = next_BS
        carried = {REFRESHED: reusing.refreshed_BS} if reusing else {}
        info = TextStep(
            state=SamplerState(step + 1, ids_BS, generator.get_state(), carried),
            total=config.steps,
            decided_BS=decided_BS,
            seconds=time.perf_counter() - started,
            prior_seconds=prior_seconds,
            reuse=reusing.report if reusing else None,
        )
        if on_step is not None and on_step(info) is False:
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


def _reveal_at_random(
    ids_BS: Tensor,
    logits_BSV: Tensor,
    share: Tensor,
    masked_BS: Tensor,
    config: TextConfig,
    generator: Generator,
) -> Tensor:
    """``origin``: reveals each position of ``masked_BS`` independently with probability
    ``share``.
    """
    token_N = ids_BS[masked_BS]
    chosen_N = torch.rand(token_N.shape, generator=generator, device=ids_BS.device) < float(share)
    token_N[chosen_N] = sample_tokens(logits_BSV[masked_BS][chosen_N], config, generator)[1]
    return ids_BS.masked_scatter(masked_BS, token_N)


def _reveal_most_trusted(
    ids_BS: Tensor,
    logits_BSV: Tensor,
    initial_BSV: Tensor,
    share: Tensor,
    masked_BS: Tensor,
    prior: TextPrior,
    config: TextConfig,
    generator: Generator,
    independent: bool,
) -> Tensor:
    """Samples a token for every position of ``masked_BS`` and keeps the most confident ones: a
    share of the masks of each row, or of the mean over the rows.
    """
    confidence_N, token_N = sample_tokens(
        logits_BSV[masked_BS], config, generator, initial_BSV[masked_BS]
    )
    masks_B = masked_BS.sum(1).cpu()
    if not independent:
        masks_B = masks_B.float().mean().expand(len(masks_B))
    count_B = (masks_B * share).long()
    most = int(count_B.max())
    if most == 0:
        return ids_BS
    if config.end_last:
        confidence_N = confidence_N.masked_fill(token_N == prior.eos_id, LEAST_CONFIDENCE)
    confidence_BS = logits_BSV.new_full(ids_BS.shape, -torch.inf).masked_scatter(
        masked_BS, confidence_N
    )
    if config.alg_temp:
        # rows with fewer masks draw as many positions; more than their count is ignored below
        weight_BS = (confidence_BS / config.alg_temp).float().softmax(-1)
        # masks before decided positions, however unlikely they are
        least, never = weight_BS.new_tensor(1e-30), torch.finfo(torch.float32).tiny
        possible_BS = weight_BS.maximum(least).masked_fill(~masked_BS, never)
        kept_BC = torch.multinomial(possible_BS, most, generator=generator)
    else:
        kept_BC = confidence_BS.topk(most, dim=-1).indices
    if not independent:
        drawn_BS = torch.full_like(ids_BS, prior.mask_id).masked_scatter(masked_BS, token_N)
        return ids_BS.scatter(1, kept_BC, drawn_BS.gather(1, kept_BC))
    within_BC = (torch.arange(most) < count_B[:, None]).to(ids_BS.device)
    drawn_BC = ids_BS.masked_scatter(masked_BS, token_N).gather(1, kept_BC)
    return ids_BS.scatter(1, kept_BC, torch.where(within_BC, drawn_BC, ids_BS.gather(1, kept_BC)))
