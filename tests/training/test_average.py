"""Averaging runs: the mean of their weights, in their precision."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from training.average import average


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
