"""Small fully connected networks that ship with the package, computed in NumPy: the processes that
read uploads have no PyTorch.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from aps_core.checkpoints.files import EMBEDDED

Array = NDArray[np.float64]

FOLDER = EMBEDDED / "diagnosis"
HIDDEN = ("1", "2")
"""Layers before the last."""
LARGEST = 6.0
"""Deviations from the mean to which inputs are clipped, as in training."""


def answer(name: str, vector: Array) -> Array:
    """What the network of that name answers (A,) to its inputs (F,)."""
    net = stored(name)
    hidden = np.clip((vector - net["mean"]) / net["deviation"], -LARGEST, LARGEST)
    for layer in HIDDEN:
        hidden = np.maximum(net[f"weight{layer}"] @ hidden + net[f"bias{layer}"], 0)
    last: Array = net["weight3"] @ hidden + net["bias3"]
    return last


@cache
def stored(name: str) -> dict[str, Array]:
    """Weights, and mean and deviation of the inputs in training."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return {key: file[key].astype(np.float64) for key in file.files}
