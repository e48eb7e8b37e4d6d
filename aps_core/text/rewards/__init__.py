"""Text rewards, registered by :class:`RewardSpec`. Specs need no torch."""

from aps_core.text.rewards.specs import (
    LogLikelihoodReward,
    RewardSpec,
    SequenceClassifierReward,
    YesNoReward,
)

__all__ = ["LogLikelihoodReward", "RewardSpec", "SequenceClassifierReward", "YesNoReward"]
