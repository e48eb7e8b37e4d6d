"""Functions of tensors as CUDA graphs: one launch instead of thousands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from aps_core.sampling.cuda_graph import captured

Function = Callable[..., Tensor]


class _Recorded:
    """A function of tensors of the same shapes."""

    def __init__(self, function: Function, inputs: Sequence[Tensor]) -> None:
        self.function = function
        self.inputs = [each.clone() for each in inputs]
        self.result = torch.empty(0)
        self.replay = captured(self._call)

    def _call(self) -> None:
        self.result = self.function(*self.inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        for mine, theirs in zip(self.inputs, inputs, strict=True):
            mine.copy_(theirs)
        self.replay()
        return self.result.clone()


_recorded: dict[Hashable, _Recorded] = {}


def recorded(name: Hashable, function: Function, *inputs: Tensor) -> Tensor:
    """``function(*inputs)``; on a GPU recorded once for every name and shapes of inputs, and then
    replayed. Whatever else the function depends on is part of its name.
    """
    if inputs[0].device.type != "cuda":
        return function(*inputs)
    key = name, tuple(each.shape for each in inputs)
    if key not in _recorded:
        _recorded[key] = _Recorded(function, inputs)
    return _recorded[key](inputs)
