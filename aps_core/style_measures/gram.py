"""Gram statistics of the prior's own image encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.style_measures.base import StyleMeasureSpec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.objectives.gram import GramStyle
    from aps_core.style_measures.base import NetworkCache
    from aps_core.types import Tokenizer


class Gram(StyleMeasureSpec):
    """Gram statistics of the prior's own image encoder; needs no further weights."""

    type: Literal["gram"] = "gram"
    recommended: ClassVar[Mapping[str, Any]] = {"temperature": 1.0}

    def bind(
        self, reference_CHW: Tensor, tokenizer: Tokenizer, networks: NetworkCache
    ) -> GramStyle:
        """Distance of mean and covariance of the encoder's channels."""
        from aps_core.objectives.gram import GramStyle

        return GramStyle(tokenizer, reference_CHW)
