"""Small fully connected networks that ship with the package, evaluated in NumPy because processes
that read uploads do not load PyTorch.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from aps_core.checkpoints.files import EMBEDDED

Array = NDArray[np.float64]

FOLDER = EMBEDDED / "diagnosis"
HIDDEN = ("1", "2")
"""Numbers of the hidden layers."""
LARGEST = 6.0
"""Bound, in standard deviations, to which inputs are clipped, as in training."""


def answer(name: str, vector: Array) -> Array:
    """Output (A,) of the network ``name`` for its inputs (F,)."""
    net = stored(name)
    hidden = np.clip((vector - net["mean"]) / net["deviation"], -LARGEST, LARGEST)
    for layer in HIDDEN:
        hidden = np.maximum(net[f"weight{layer}"] @ hidden + net[f"bias{layer}"], 0)
    last: Array = net["weight3"] @ hidden + net["bias3"]
    return last


@cache
def stored(name: str) -> dict[str, Array]:
    """Weights of a network, and mean and standard deviation of its training inputs."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return {key: file[key].astype(np.float64) for key in file.files}
