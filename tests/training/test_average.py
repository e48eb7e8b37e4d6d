"""Averaging runs: the mean of their weights, in their precision."""

from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from training.average import average, average_states
from training.loop import train
from training.schedule import Constant


def run_folder(folder: Path, value: float, config: str = "{}") -> Path:
    folder.mkdir()
    save_file({"layer": torch.full((2, 3), value).half()}, folder / "model.safetensors")
    (folder / "config.json").write_text(config)
    (folder / "log.jsonl").write_text(f"{value}\n")
    (folder / "curves.png").write_bytes(b"png")
    return folder


def test_the_mean_of_runs_is_a_run(tmp_path):
    runs = [run_folder(tmp_path / name, value) for name, value in (("one", 1.0), ("two", 4.0))]
    average(runs, tmp_path / "mean")
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    assert torch.equal(mean["layer"], torch.full((2, 3), 2.5).half())
    assert {path.name for path in (tmp_path / "mean").iterdir()} == {
        path.name for path in runs[0].iterdir()
    }
    assert (tmp_path / "mean" / "log.jsonl").read_text() == "1.0\n"


def test_runs_of_different_networks_are_refused(tmp_path):
    runs = [run_folder(tmp_path / "one", 1.0), run_folder(tmp_path / "two", 1.0, '{"width": 8}')]
    with pytest.raises(ValueError, match="different networks"):
        average(runs, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def trained(out: Path, *, spent: float = 0.0) -> dict:
    """The state of a small run that goes on for a while."""
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1)
    seed = len(out.name)  # another one for every run
    generator = torch.Generator().manual_seed(seed)

    def loss(share: float) -> tuple[torch.Tensor, dict[str, float]]:
        value = net(torch.randn(4, 2, generator=generator)).square().mean()
        return value, {"loss": value.item()}

    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    train(net, loss, [optimizer], out, Constant(spent + 0.002), lambda averaged: {})
    return torch.load(out / "state.pt", weights_only=True)


def test_runs_go_on_from_the_mean_of_their_states(tmp_path):
    runs = [tmp_path / "one", tmp_path / "other"]
    before = [trained(run) for run in runs]
    average_states(runs)
    after = [torch.load(run / "state.pt", weights_only=True) for run in runs]
    for path in (("model", "weight"), ("optimizers", 0, "state", 0, "exp_avg")):
        one, other, merged, also = (reduce(getitem, path, state) for state in (*before, *after))
        assert not torch.equal(one, other)
        assert torch.allclose(merged, (one + other) / 2)
        assert torch.equal(merged, also)
    assert [state["step"] for state in after] == [state["step"] for state in before]
    assert trained(runs[0], spent=after[0]["spent"])["step"] > before[0]["step"]
