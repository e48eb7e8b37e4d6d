"""Reading published checkpoints: strict, streamed, without pickle."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from aps_core.checkpoints.files import read_tensors
from aps_core.errors import WeightsInvalid, WeightsMissing

ROOT = Path(__file__).parents[2]
SHAPES = {"a.weight": (6, 4), "b.weight": (3,), "head.weight": (10, 4)}


def tensors():
    generator = torch.Generator().manual_seed(0)
    return {key: torch.randn(shape, generator=generator) for key, shape in SHAPES.items()}


def sharded(folder: Path, parts: dict[str, dict], index: dict[str, str] | None = None) -> Path:
    """A sharded checkpoint in transformers' layout."""
    for name, part in parts.items():
        save_file(part, folder / name)
    where = {key: name for name, part in parts.items() for key in part}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": index or where})
    )
    return folder


def halves():
    stored = tensors()
    return {
        "model-00001-of-00002.safetensors": {"a.weight": stored["a.weight"]},
        "model-00002-of-00002.safetensors": {k: stored[k] for k in list(SHAPES)[1:]},
    }


@pytest.mark.parametrize(
    "layout",
    [
        "model.safetensors",
        "pytorch_model.safetensors",
        "diffusion_pytorch_model.safetensors",
        "sharded",
    ],
)
def test_every_published_layout_reads_the_same(tmp_path, layout):
    if layout == "sharded":
        sharded(tmp_path, halves())
    else:
        save_file(tensors(), tmp_path / layout)
    read = read_tensors(tmp_path, SHAPES, dtype=torch.bfloat16)
    assert read.keys() == SHAPES.keys()
    assert all(torch.equal(read[key], value.bfloat16()) for key, value in tensors().items())


def test_single_rows_of_a_head_can_be_read(tmp_path):
    save_file(tensors(), tmp_path / "model.safetensors")
    read = read_tensors(tmp_path, SHAPES, rows={"head.weight": slice(2, 5)})
    assert torch.equal(read["head.weight"], tensors()["head.weight"][2:5])
    assert torch.equal(read["a.weight"], tensors()["a.weight"])


def test_loaded_tensors_do_not_depend_on_the_file(tmp_path):
    save_file(tensors(), tmp_path / "model.safetensors")
    read = read_tensors(tmp_path, SHAPES)
    os.truncate(
        tmp_path / "model.safetensors", 0
    )  # a memory-mapped view would now crash the process
    assert torch.equal(read["a.weight"], tensors()["a.weight"])


def broken_missing_shard(folder):
    sharded(folder, halves())
    (folder / "model-00002-of-00002.safetensors").unlink()


def broken_index_promises(folder):
    where = dict.fromkeys(SHAPES, "model-00001-of-00002.safetensors")
    sharded(folder, halves(), where)


def broken_index_hides(folder):
    sharded(
        folder,
        halves(),
        {
            "a.weight": "model-00001-of-00002.safetensors",
            "b.weight": "model-00002-of-00002.safetensors",
        },
    )


def broken_index_escapes(folder):
    sharded(folder, halves(), {"a.weight": "../elsewhere.safetensors"})


def broken_truncated_shard(folder):
    sharded(folder, halves())
    os.truncate(folder / "model-00002-of-00002.safetensors", 100)


def broken_shape(folder):
    save_file({**tensors(), "b.weight": torch.zeros(4)}, folder / "model.safetensors")


def broken_extra_key(folder):
    save_file({**tensors(), "c.weight": torch.zeros(4)}, folder / "model.safetensors")


def broken_absent_key(folder):
    save_file(
        {"a.weight": tensors()["a.weight"], "head.weight": tensors()["head.weight"]},
        folder / "model.safetensors",
    )


def broken_quantised(folder):
    save_file(
        {**tensors(), "b.weight": torch.zeros(3, dtype=torch.int8)}, folder / "model.safetensors"
    )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            broken_missing_shard,
            r"model-00002-of-00002\.safetensors does not exist.*2 tensors, among them 'b\.weight'",
        ),
        (
            broken_index_promises,
            (
                r"model-00001-of-00002\.safetensors: key 'b\.weight' is not there, though the index"
                r" says so"
            ),
        ),
        (
            broken_index_hides,
            r"model-00002-of-00002\.safetensors: key 'head\.weight' is not in the index",
        ),
        (
            broken_index_escapes,
            (
                r"'a\.weight' lies in '\.\./elsewhere\.safetensors', which is not the name of a"
                r" file beside it"
            ),
        ),
        (
            broken_truncated_shard,
            r"model-00002-of-00002\.safetensors is not a readable safetensors file",
        ),
        (broken_shape, r"model\.safetensors: 'b\.weight' has shape \(4,\), expected \(3,\)"),
        (broken_extra_key, r"model\.safetensors: key 'c\.weight' is unexpected"),
        (broken_absent_key, r"key 'b\.weight' is missing"),
        (broken_quantised, r"model\.safetensors: 'b\.weight' is stored as I8"),
    ],
)
def test_damaged_files_are_reported(tmp_path, damage, words):
    damage(tmp_path)
    with pytest.raises(WeightsInvalid, match=words):
        read_tensors(tmp_path, SHAPES)


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pth", "model.safetensors", "model.ckpt"]
)
@pytest.mark.parametrize("archive", [True, False])
def test_pickles_are_rejected_without_opening(tmp_path, name, archive):
    trap = Trap(tmp_path / "sprung")
    if archive:
        torch.save({"a.weight": trap}, tmp_path / name)
    else:
        (tmp_path / name).write_bytes(pickle.dumps({"a.weight": trap}))
    with pytest.raises(WeightsInvalid, match=rf"{name} is a pickle"):
        read_tensors(tmp_path, SHAPES)
    assert not (tmp_path / "sprung").exists()


def test_an_empty_folder_is_missing_weights(tmp_path):
    with pytest.raises(WeightsMissing, match="holds no model"):
        read_tensors(tmp_path, SHAPES)
    with pytest.raises(WeightsMissing, match="does not exist"):
        read_tensors(tmp_path / "model.safetensors", SHAPES)


@pytest.fixture(scope="module")
def loads():
    """Memory use of loading MAGVIT-v2 and narrow transformers, each in a separate process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "benchmarks/load.py", "--width", "256", "--layers", "2", "--json"]
    return json.loads(
        subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout
    )


@pytest.mark.slow
def test_loading_never_holds_two_copies_in_host_memory(loads):
    for row in loads["loads"]:
        # what was asked for, one tensor on its way, and what the allocator rounds up and libraries
        # touch for the first time
        assert row["extra"] < row["loaded"] + 1.1 * row["largest"] + 60_000_000, row
    magvit, mmada, dream = loads["loads"]
    assert magvit["extra"] < magvit["files"]
    assert mmada["loaded"] < 0.6 * mmada["files"], "the head's text rows are not read"
    assert abs(dream["loaded"] - dream["files"]) < 0.01 * dream["files"]


@pytest.mark.slow
def test_all_published_layers_are_found_by_key_and_shape(loads):
    assert loads["full_key_lists"] == {"mmada-8b-base": 291, "dream-7b-instruct": 339}
