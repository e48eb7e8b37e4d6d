"""The evaluation of a TensorFlow graph in PyTorch, on a graph with what MAXIM's has."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from research.blind.maxim import Maxim


def text(value: str) -> dict[str, str]:
    return {"s": base64.b64encode(value.encode()).decode()}


def written(folder: Path, nodes: list[dict[str, Any]], weights: dict[str, np.ndarray]) -> Path:
    """A model in the format of TensorFlow.js, its weights in two shards."""
    data = b"".join(each.tobytes() for each in weights.values())
    for name, part in (("a.bin", data[:50]), ("b.bin", data[50:])):
        (folder / name).write_bytes(part)
    listed = [
        {"name": name, "shape": each.shape, "dtype": str(each.dtype)}
        for name, each in weights.items()
    ]
    consts = [{"name": name, "op": "Const"} for name in weights]
    place = {"name": "xs_0", "op": "Placeholder"}
    described = {
        "modelTopology": {"node": [*nodes, place, *consts]},
        "weightsManifest": [{"paths": ["a.bin", "b.bin"], "weights": listed}],
    }
    (folder / "model.json").write_text(json.dumps(described))
    return folder


def test_a_graph_is_evaluated_as_tensorflow_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    strides = {"strides": {"list": {"i": ["1", "2", "2", "1"]}}}
    nodes: list[dict[str, Any]] = [
        {"name": "out", "op": "Identity", "input": ["mixed", "^unused"]},
        {
            "name": "mixed",
            "op": "Einsum",
            "input": ["large", "mix"],
            "attr": {"equation": text("abcg,gf->abcf")},
        },
        {
            "name": "large",
            "op": "Conv2DBackpropInput",
            "input": ["size", "up", "small"],
            "attr": {**strides, "padding": text("VALID")},
        },
        {
            "name": "small",
            "op": "Conv2D",
            "input": ["xs_0", "down"],
            "attr": {**strides, "padding": text("SAME")},
        },
    ]
    weights = {
        "down": (0.1 * rng.normal(size=(3, 3, 3, 2))).astype(np.float32),
        "up": rng.normal(size=(2, 2, 4, 2)).astype(np.float32),
        "mix": (0.5 * rng.normal(size=(4, 3))).astype(np.float32),
        "size": np.array([1, 64, 64, 4], dtype=np.int32),
    }
    net = Maxim(written(tmp_path, nodes, weights))
    x = rng.uniform(size=(64, 64, 3)).astype(np.float32)
    # by hand: TensorFlow pads an even side by one pixel at its end only
    wide = np.pad(x, ((0, 1), (0, 1), (0, 0)))
    small = np.stack(
        [
            np.stack([np.tensordot(wide[i : i + 3, j : j + 3], weights["down"], 3) for j in steps])
            for steps in [range(0, 64, 2)]
            for i in steps
        ]
    )
    large = np.einsum("ijc,klfc->ikjlf", small, weights["up"]).reshape(64, 64, 4)
    expected = torch.from_numpy(2 * (large @ weights["mix"]) - 1).permute(2, 0, 1).clamp(-1, 1)
    got = net(torch.from_numpy(2 * x - 1).permute(2, 0, 1))
    assert torch.allclose(got, expected, atol=1e-4)
    assert (expected.abs() < 1).float().mean() > 0.1


def test_a_picture_of_any_size_keeps_its_size(tmp_path: Path) -> None:
    nodes: list[dict[str, Any]] = [
        {"name": "out", "op": "Identity", "input": ["half"]},
        {"name": "half", "op": "Mul", "input": ["xs_0", "factor"]},
    ]
    net = Maxim(written(tmp_path, nodes, {"factor": np.full((20,), 0.5, np.float32)[:1]}))
    x = torch.rand(3, 70, 33) * 2 - 1
    assert torch.allclose(net(x), (x + 1) / 2 - 1, atol=1e-6)
