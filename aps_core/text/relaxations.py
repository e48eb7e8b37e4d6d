"""What a reward model reads where the answer is undecided: a family. Specs need no torch.

Every member blends two embeddings of a position: the expected one, ``soft = softmax(phi / T) @ E``,
and that of one token, ``hard``. The reward model reads ``soft + w (hard - soft)``; the gradient is
that of ``soft``. Members differ in the weight ``w``. ``entrgi`` and the drawn token of ``aps``
follow the APS authors' later paper, "EntRGi: Entropy Aware Reward Guidance for Diffusion Language
Models" (arXiv 2602.05000).

Shapes: B rows, L answer tokens, V the prior's vocabulary.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.registry import Spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

HardToken = Literal["drawn", "likeliest"]


class RelaxationSpec(Spec, family=True):
    """Embedding that the reward model reads at undecided positions."""

    @abstractmethod
    def weight(self, phi_BLV: Tensor) -> Tensor | float:
        """Weight ``w`` in [0, 1] of the hard token, (B, L) or a number, without gradient."""

    @property
    def draws(self) -> bool:
        """Whether the hard token is drawn; otherwise it is the most likely one."""
        return False


class Expectation(RelaxationSpec):
    """The expected embedding; no single token is read."""

    type: Literal["expectation"] = "expectation"

    def weight(self, phi_BLV: Tensor) -> float:
        """0: the value is the expectation."""
        return 0.0


class HardTokenRelaxation(RelaxationSpec):
    """Base class of members that read a token."""

    token: HardToken = Field(
        "drawn",
        description=(
            "Which token is read: one drawn after temperature, top-p and top-k (the authors'"
            " code), or the most likely one."
        ),
    )

    @property
    def draws(self) -> bool:
        """Whether the token is drawn."""
        return self.token == "drawn"


class StraightThrough(HardTokenRelaxation):
    """The token's embedding, with the gradient of the expected embedding (anchored posterior
    sampling).
    """

    type: Literal["aps"] = "aps"

    def weight(self, phi_BLV: Tensor) -> float:
        """1: the value is the token's embedding."""
        return 1.0


class EntropyAware(HardTokenRelaxation):
    """EntRGi: the expected embedding where the prior is certain, the token's embedding where it is
    uncertain.
    """

    type: Literal["entrgi"] = "entrgi"

    def weight(self, phi_BLV: Tensor) -> Tensor:
        """Entropy of softmax(phi) divided by its maximum, log V."""
        log_p_BLV = phi_BLV.detach().log_softmax(-1)
        entropy_BL: Tensor = torch.special.entr(log_p_BLV.exp()).sum(-1)
        return entropy_BL / math.log(phi_BLV.shape[-1])
