"""The paper's style measure: Contrastive Style Descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aps_core.checkpoints import checkpoint_cache
from aps_core.style_measures.base import StyleMeasureSpec

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.objectives.csd import StyleObjective
    from aps_core.style_measures.base import NetworkCache
    from aps_core.types import Tokenizer

WEIGHTS = "csd-vit-l"


class CSD(StyleMeasureSpec):
    """The paper's style vector (CSD); its weights must be installed."""

    type: Literal["csd"] = "csd"
    weights: ClassVar[tuple[str, ...]] = (WEIGHTS,)
    recommended: ClassVar[Mapping[str, Any]] = {  # the paper's
        "learning_rate": 0.1,
        "inner_steps": 100,
        "steps": 15,
    }

    def bind(
        self, reference_CHW: Tensor, tokenizer: Tokenizer, networks: NetworkCache
    ) -> StyleObjective:
        """Cosine distance of style vectors."""
        from aps_core.objectives.csd import StyleObjective, load_csd

        path = checkpoint_cache.path(WEIGHTS)
        descriptor = networks(WEIGHTS, lambda: load_csd(path, reference_CHW.device))
        return StyleObjective(descriptor, reference_CHW)
