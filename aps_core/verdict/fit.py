"""Verdict on a restoration: whether the assumed degradation and the result explain the upload.

For the degradation, a picture is fitted through the operator by least squares with a small
total-variation penalty and no other prior. If its misfit in some frequency band exceeds the noise,
the operator is wrong. For the result, its misfit is compared with noise and tokenizer error.

Verdicts cannot rank operators: the weakest blur always has the lowest misfit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.errors import SamplingCancelled
from aps_core.imaging.resampling import edge_pad, resize
from aps_core.registry import Config
from aps_core.verdict.thresholds import VERDICT

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.types import BoundOperator, Tokenizer
else:
    torch = lazy_import("torch")

Verdict = Literal["agrees", "undecided", "disagrees"]

STEPS, RATE, SMOOTHNESS = 80, 0.05, 4.0
"""Adam steps for the fitted picture, learning rate, and weight of its total variation in nats."""
CHECKED_EVERY = 5
"""Steps between calls of ``keep_going``."""


class Fit(Config):
    """How well degradation and result explain the upload. Deviations are root mean squares on the
    [-1, 1] scale.
    """

    verdict: Verdict
    text: str = Field(description="The verdict in plain words.")
    explained: float = Field(
        description=(
            "Misfit of the smooth picture that fits best under this degradation, relative to noise,"
            " in the band of frequencies that it explains worst."
        )
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
        operator: the assumed degradation, bound to the result's size.
        words: the operator in words, for example 'a Gaussian blur of 2 pixels'.
        x_CHW: the result in [-1, 1].
        y_CHW: the measurement.
        sigma: standard deviation of its noise, as a number or per value.
        tokenizer: the prior's tokenizer.
        keep_going: called with the number of finished steps; returning False cancels.

    Raises:
        SamplingCancelled: ``keep_going`` returned False.
    """
    from aps_core.verdict.residual_spectrum import unexplained

    with torch.no_grad():
        measured_CHW = operator(x_CHW[None])[0]
        coded_CHW = operator(round_trip(tokenizer, x_CHW))[0]
    noise_CHW = torch.as_tensor(sigma).to(y_CHW).expand_as(y_CHW)
    weight = operator.weight
    weight_CHW = torch.ones_like(y_CHW) if weight is None else weight.expand_as(y_CHW[None])[0]

    def deviation(values: Tensor) -> float:
        return math.sqrt(float((values.square() * weight_CHW).sum() / weight_CHW.sum()))

    residual_CHW = fitted_residual(operator, x_CHW, y_CHW, noise_CHW, weight_CHW, keep_going)
    explained = unexplained(
        residual_CHW, y_CHW, noise_CHW.clamp(min=VERDICT.least_noise), weight_CHW
    )
    misfit, coding = deviation(measured_CHW - y_CHW), deviation(coded_CHW - measured_CHW)
    noise = deviation(noise_CHW)
    return _verdict(explained, misfit, noise, coding, words)


def combined(fits: Sequence[Fit], words: str) -> Fit:
    """Combines the verdicts on equally large parts of a picture into one.

    Args:
        fits: verdicts on the parts, at least one.
        words: the operator in words.
    """

    def deviation(name: str) -> float:
        squares = [getattr(fit, name) ** 2 for fit in fits]
        return math.sqrt(sum(squares) / len(squares))

    explained, misfit = deviation("explained"), deviation("misfit")
    noise, coding = deviation("noise"), deviation("tokenizer")
    return _verdict(explained, misfit, noise, coding, words)


def _verdict(explained: float, misfit: float, noise: float, coding: float, words: str) -> Fit:
    """Verdict from the deviations of result, noise and tokenizer."""
    ratio = misfit / math.hypot(max(noise, VERDICT.least_noise), coding)
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
    """Residual ``A(x) - y`` of argmin ``|A(x) - y|^2 / (2 sigma^2) + SMOOTHNESS TV(x)``.

    Args:
        operator: A.
        start_CHW: start in [-1, 1] if the measurement is not a picture.
        y_CHW: the measurement.
        noise_CHW: sigma of every value; at least :attr:`VerdictThresholds.least_noise` is used.
        weight_CHW: 1 where a value was observed, else 0.
        keep_going: called with the number of finished steps; returning False cancels.

    Raises:
        SamplingCancelled: ``keep_going`` returned False.
    """
    from aps_core.imaging.total_variation import total_variation_estimate

    def watch(done: int, steps: int, loss: Tensor, x_BCHW: Tensor) -> None:
        if keep_going is None or (done - 1) % CHECKED_EVERY:
            return
        if keep_going(done - 1) is False:
            raise SamplingCancelled("The run was stopped while its result was judged.")

    x_1CHW = total_variation_estimate(
        _WhiteNoise(operator, y_CHW, weight_CHW / noise_CHW.clamp(min=VERDICT.least_noise)),
        _start(start_CHW, y_CHW),
        weight=SMOOTHNESS,
        steps=STEPS,
        learning_rate=RATE,
        bounded=False,
        watch=watch,
    )
    with torch.no_grad():
        return operator(x_1CHW)[0] - y_CHW


@dataclass(frozen=True)
class _WhiteNoise:
    """Likelihood of independent Gaussian noise."""

    operator: BoundOperator
    y_CHW: Tensor
    precision_CHW: Tensor
    """1 / sigma of every value; 0 where it is not observed."""

    def negative_log_likelihood(self, x_BCHW: Tensor) -> Tensor:
        """Negative log likelihood up to a constant, (B,)."""
        misses_BCHW = (self.operator.unclipped(x_BCHW) - self.y_CHW) * self.precision_CHW
        return misses_BCHW.square().flatten(1).sum(1) / 2


def _start(x_CHW: Tensor, y_CHW: Tensor) -> Tensor:
    """Measurement at the picture's size (1, 3, H, W); the result if it is not a picture."""
    if y_CHW.shape[0] != 3 or min(y_CHW.shape[1:]) < 2:
        return x_CHW[None]

    return resize(y_CHW, (x_CHW.shape[1], x_CHW.shape[2]))[None].clamp(-1, 1)


def verdict_of(explained: float, ratio: float) -> Verdict:
    """Verdict from the two ratios of :class:`Fit`."""
    if explained >= VERDICT.fails:
        return "disagrees"
    return "agrees" if explained <= VERDICT.explains and ratio <= VERDICT.reaches else "undecided"


def text_of(explained: float, ratio: float, words: str) -> str:
    """Verdict in a sentence; ``words`` name the assumed operator."""
    if explained >= VERDICT.fails:
        return (
            f"The result does not agree with your picture: the degradation is probably not {words}."
        )
    if explained > VERDICT.explains:
        return (
            "It is undecided whether the result agrees with your picture: the degradation may not"
            f" be {words}."
        )
    if ratio > VERDICT.reaches:
        return (
            "It is undecided whether the result agrees with your picture: it differs by more than"
            " noise, although the degradation is possible. More steps or samples may help."
        )
    return (
        "The result agrees with your picture. Other pictures and weaker degradations may agree as"
        " well."
    )


def round_trip(tokenizer: Tokenizer, x_CHW: Tensor) -> Tensor:
    """Picture (1, 3, H, W) after encoding and decoding by the tokenizer."""

    height, width = x_CHW.shape[1:]
    stride = tokenizer.stride
    with torch.no_grad():
        padded_1CHW = edge_pad(x_CHW[None], -height % stride, -width % stride)
        grid = (padded_1CHW.shape[2] // stride, padded_1CHW.shape[3] // stride)
        decoded = tokenizer.decode(tokenizer.codebook_KD[tokenizer.encode(padded_1CHW)], grid)
    return decoded[..., :height, :width].clamp(-1, 1)
