"""Verdict on a restoration: can the assumed degradation explain the upload, and does the result?

First question: a least-squares picture with little total variation is fitted through the operator,
without any prior. If even that misses the upload by more than noise, the operator is wrong. Second
question: the result's own misfit is compared with the noise and the tokenizer's error.

A verdict never ranks operators: the least blur always has the lowest misfit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import SamplingCancelled
from aps_core.registry import Config

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.types import BoundOperator, Tokenizer
else:
    torch = lazy_import("torch")

Verdict = Literal["agrees", "undecided", "disagrees"]

EXPLAINS, FAILS = 1.1, 1.35
"""Largest misfit of the fitted picture, relative to noise, with which an operator explains the
upload, and smallest with which it does not; chosen with ``benchmarks/fit_verdict.py``.
"""
REACHES = 2.0
"""Largest misfit of a result, relative to noise and tokenizer error together, that agrees."""
LEAST_NOISE = 0.01
"""No operator is exact: smaller noise is judged as this much (1.3 grey levels)."""
STEPS, RATE, SMOOTHNESS = 80, 0.05, 4.0
"""Adam steps of the fitted picture, their rate, and the weight of its total variation."""
CHECKED_EVERY = 5
"""Steps between questions whether to go on."""


class Fit(Config):
    """How well degradation and result explain the upload. Deviations are root mean squares on the
    [-1, 1] scale.
    """

    verdict: Verdict
    text: str = Field(description="The verdict in plain words.")
    explained: float = Field(
        description="Least misfit of any smooth picture under this degradation, relative to noise."
    )
    ratio: float = Field(description="Misfit of the result, relative to noise and tokenizer error.")
    misfit: float = Field(description="Deviation of the degraded result from the upload.")
    noise: float = Field(description="Deviation of the noise.")
    tokenizer: float = Field(
        description="Deviation that the prior's tokenizer alone causes, seen through the operator."
    )


def judge(
    operator: BoundOperator,
    words: str,
    x_CHW: Tensor,
    y_CHW: Tensor,
    sigma: float | Tensor,
    tokenizer: Tokenizer,
    keep_going: Callable[[int], bool | None] | None = None,
) -> Fit:
    """Judges one result.

    Args:
        operator: the assumed degradation, for pictures of the result's size.
        words: the operator in words, for example 'a Gaussian blur of 2 pixels'.
        x_CHW: the result in [-1, 1].
        y_CHW: the measurement.
        sigma: standard deviation of its noise, as a number or for every value.
        tokenizer: the prior's tokenizer.
        keep_going: called with the number of finished steps; returning False cancels.

    Raises:
        SamplingCancelled: ``keep_going`` returned False.
    """
    with torch.no_grad():
        measured_CHW = operator(x_CHW[None])[0]
        coded_CHW = operator(round_trip(tokenizer, x_CHW))[0]
    noise_CHW = torch.as_tensor(sigma).to(y_CHW).expand_as(y_CHW)
    weight = operator.weight
    weight_CHW = torch.ones_like(y_CHW) if weight is None else weight[0].expand_as(y_CHW)

    def deviation(values: Tensor) -> float:
        return math.sqrt(float((values.square() * weight_CHW).sum() / weight_CHW.sum()))

    residual_CHW = fitted_residual(operator, x_CHW, y_CHW, noise_CHW, weight_CHW, keep_going)
    explained = deviation(residual_CHW / noise_CHW.clamp(min=LEAST_NOISE))
    misfit, coding = deviation(measured_CHW - y_CHW), deviation(coded_CHW - measured_CHW)
    noise = deviation(noise_CHW)
    ratio = misfit / math.hypot(max(noise, LEAST_NOISE), coding)
    return Fit(
        verdict=verdict_of(explained, ratio),
        text=text_of(explained, ratio, words),
        explained=explained,
        ratio=ratio,
        misfit=misfit,
        noise=noise,
        tokenizer=coding,
    )


def fitted_residual(
    operator: BoundOperator,
    start_CHW: Tensor,
    y_CHW: Tensor,
    noise_CHW: Tensor,
    weight_CHW: Tensor,
    keep_going: Callable[[int], bool | None] | None = None,
) -> Tensor:
    """``A(x) - y`` of the picture x of least ``|A(x) - y|^2 / (2 sigma^2) + SMOOTHNESS TV(x)``.

    Raises:
        SamplingCancelled: ``keep_going`` returned False.
    """
    trust_CHW = weight_CHW / noise_CHW.clamp(min=LEAST_NOISE)
    x_1CHW = _start(start_CHW, y_CHW).requires_grad_()
    optimiser = torch.optim.Adam([x_1CHW], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for step in range(STEPS):
        if keep_going is not None and step % CHECKED_EVERY == 0 and keep_going(step) is False:
            raise SamplingCancelled("The run was stopped while its result was judged.")
        misses = (operator.unclipped(x_1CHW)[0] - y_CHW) * trust_CHW
        loss = misses.square().sum() / 2 + SMOOTHNESS * total_variation(x_1CHW)
        (x_1CHW.grad,) = torch.autograd.grad(loss, x_1CHW)
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        return operator(x_1CHW)[0] - y_CHW


def _start(x_CHW: Tensor, y_CHW: Tensor) -> Tensor:
    """The measurement at the picture's size; the result itself if it is no picture."""
    if y_CHW.shape[0] != 3 or min(y_CHW.shape[1:]) < 2:
        return x_CHW[None].clone()
    from aps_core.imaging.resampling import resize

    return resize(y_CHW[None], (x_CHW.shape[1], x_CHW.shape[2])).clamp(-1, 1).clone()


def total_variation(x_BCHW: Tensor) -> Tensor:
    """Sum over all pixels of the length of the gradient of every channel."""
    down, right = x_BCHW.diff(dim=-2)[..., :-1], x_BCHW.diff(dim=-1)[..., :-1, :]
    # the constant keeps the gradient finite in flat areas
    total: Tensor = (down.square() + right.square() + 1e-6).sqrt().sum()
    return total


def verdict_of(explained: float, ratio: float) -> Verdict:
    """The verdict; see :class:`Fit` for the two numbers."""
    if explained >= FAILS:
        return "disagrees"
    return "agrees" if explained <= EXPLAINS and ratio <= REACHES else "undecided"


def text_of(explained: float, ratio: float, words: str) -> str:
    """The verdict in a sentence; ``words`` name the assumed operator."""
    if explained >= FAILS:
        return (
            f"The result does not agree with your picture: the degradation is probably not {words}."
        )
    if explained > EXPLAINS:
        return (
            "It is undecided whether the result agrees with your picture: the degradation may not"
            f" be {words}."
        )
    if ratio > REACHES:
        return (
            "It is undecided whether the result agrees with your picture: it differs by more than"
            " noise, although the degradation is possible. More steps or samples may help."
        )
    return (
        "The result agrees with your picture. Other pictures and weaker degradations may agree as"
        " well."
    )


def round_trip(tokenizer: Tokenizer, x_CHW: Tensor) -> Tensor:
    """A picture (1, 3, H, W) encoded and decoded by the tokenizer."""
    from aps_core.imaging.resampling import edge_pad

    height, width = x_CHW.shape[1:]
    stride = tokenizer.stride
    padded_1CHW = edge_pad(x_CHW[None], -height % stride, -width % stride)
    grid = (padded_1CHW.shape[2] // stride, padded_1CHW.shape[3] // stride)
    decoded = tokenizer.decode(tokenizer.codebook_KD[tokenizer.encode(padded_1CHW)], grid)
    return decoded[..., :height, :width].clamp(-1, 1)
