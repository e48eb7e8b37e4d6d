"""Loads synthetic checkpoints of published shapes and reports peak host memory.

    python benchmarks/load.py                       # published widths
    python benchmarks/load.py --width 256 --json    # small enough for a test
    python benchmarks/load.py --write FOLDER        # only write the checkpoints

MAGVIT-v2 is complete; MMaDA-8B and Dream-7B have 2 layers. The files have the published keys,
shapes and shards. They are sparse (all zeros) and take no disk space. Each checkpoint is loaded in
a separate process onto the CPU, so the host holds the loaded model. When loading onto a GPU, the
host holds only the largest tensor. The key lists of all layers are checked as well.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaForCausalLM, PretrainedConfig, PreTrainedModel, Qwen2ForCausalLM

from aps_core.checkpoints.files import locate_tensors
from aps_core.checkpoints.metadata import safetensors_header
from aps_core.priors.dream.network import DreamConfig, load_dream
from aps_core.priors.llada.network import published_key
from aps_core.priors.mmada.network import MMaDAConfig, load_mmada
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig

SHARDS = 4
BYTES = {"F32": 4, "BF16": 2}
HEAD_WIDTH = 128
MMADA_LAYERS, DREAM_LAYERS = 32, 28


def mmada_config(width: int, layers: int) -> MMaDAConfig:
    heads = width // HEAD_WIDTH
    return MMaDAConfig(
        d_model=width,
        n_heads=heads,
        n_kv_heads=heads,
        n_layers=layers,
        mlp_hidden_size=3 * width,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        embedding_size=134656,
        max_sequence_length=4096,
    )


def dream_config(width: int, layers: int) -> DreamConfig:
    heads = width // HEAD_WIDTH
    return DreamConfig(
        hidden_size=width,
        intermediate_size=18944 * width // 3584,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 7),
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        max_position_embeddings=131072,
        vocab_size=152064,
        mask_token_id=151666,
        eos_token_id=151643,
    )


def write_file(path: Path, shapes: dict[str, tuple[int, ...]], kind: str) -> None:
    """Writes a sparse safetensors file of zeros, which takes no disk space."""
    header, end = {}, 0
    for key, shape in shapes.items():
        size = torch.Size(shape).numel() * BYTES[kind]
        header[key] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def write_sharded(
    folder: Path, shapes: dict[str, tuple[int, ...]], config: dict[str, object]
) -> None:
    """Writes a sharded bfloat16 checkpoint in transformers' layout, with a small tokenizer."""
    folder.mkdir(parents=True)
    keys = list(shapes)
    where: dict[str, str] = {}
    for number in range(SHARDS):
        name = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        part = keys[number * len(keys) // SHARDS : (number + 1) * len(keys) // SHARDS]
        write_file(folder / name, {key: shapes[key] for key in part}, "BF16")
        where |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": where})
    )
    (folder / "config.json").write_text(json.dumps(config))
    Tokenizer(
        models.WordLevel(
            {word: i for i, word in enumerate(["?", "a", "photograph"])}, unk_token="?"
        )
    ).save(str(folder / "tokenizer.json"))


def meta_shapes(
    network: type[PreTrainedModel], config: PretrainedConfig
) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {key: tuple(value.shape) for key, value in network(config).state_dict().items()}


def mmada_shapes(config: MMaDAConfig) -> dict[str, tuple[int, ...]]:
    return {
        published_key(key): shape
        for key, shape in meta_shapes(LlamaForCausalLM, config.llama()).items()
    }


def write_magvit(folder: Path) -> None:
    """Writes MAGVIT-v2 with the quantizer's tables and the incomplete ``config.json`` released."""
    with torch.device("meta"):
        shapes = {
            key: tuple(value.shape) for key, value in Magvit2(MagvitConfig()).state_dict().items()
        }
    folder.mkdir(parents=True)
    write_file(
        folder / "pytorch_model.safetensors", {**shapes, "quantize.embedding": (8192, 13)}, "F32"
    )
    (folder / "config.json").write_text(
        '{"_class_name": "MAGVITv2", "_diffusers_version": "0.30.1"}'
    )


def write_all(root: Path, width: int | None, layers: int) -> None:
    """Writes one folder per checkpoint of the manifest. As in the release, the ``config.json`` of
    MMaDA does not describe the token layout.
    """
    mmada, dream = mmada_config(width or 4096, layers), dream_config(width or 3584, layers)
    write_magvit(root / "magvitv2")
    write_sharded(root / "mmada-8b-base", mmada_shapes(mmada), mmada.model_dump(exclude={"layout"}))
    write_sharded(
        root / "dream-7b-instruct", meta_shapes(Qwen2ForCausalLM, dream.qwen2()), dream.model_dump()
    )


def image_tokenizer() -> MagvitTokenizer:
    """The published tokenizer without data; loading needs only the size of its codebook."""
    with torch.device("meta"):
        return MagvitTokenizer(Magvit2(MagvitConfig()))


LOADERS: dict[str, Callable[[Path], torch.nn.Module]] = {
    "magvitv2": lambda folder: load_magvit(folder, "cpu", torch.bfloat16).net,
    "mmada-8b-base": lambda folder: (
        load_mmada(folder, image_tokenizer(), torch.device("cpu"), torch.bfloat16).model
    ),
    "dream-7b-instruct": lambda folder: (
        load_dream(folder, torch.device("cpu"), torch.bfloat16).model
    ),
}


def status(field: str) -> int:
    """Reads a memory value of this process from ``/proc/self/status``, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def measure(folder: Path) -> None:
    """Entry point of the subprocess: loads one checkpoint and prints its memory use."""
    torch.set_num_threads(1)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak after the imports
    before, started = status("VmRSS"), time.perf_counter()
    model = LOADERS[folder.name](folder)
    seconds, peak = time.perf_counter() - started, status("VmHWM")
    loaded = sum(
        value.numel() * value.element_size() for value in [*model.parameters(), *model.buffers()]
    )
    stored = list(folder.glob("*.safetensors"))
    largest = max(
        end - first
        for file in stored
        for first, end in (value["data_offsets"] for value in safetensors_header(file).values())
    )
    assert not any(value.is_meta for value in [*model.parameters(), *model.buffers()])
    files = sum(file.stat().st_size for file in stored)
    print(
        json.dumps(
            {
                "name": folder.name,
                "files": files,
                "loaded": loaded,
                "largest": largest,
                "extra": peak - before,
                "seconds": seconds,
            }
        )
    )


def check_full_key_lists(root: Path) -> dict[str, int]:
    """Checks the keys and shapes of all layers at the published widths, using file headers only.

    Returns the number of tensors found per checkpoint.
    """
    mmada, dream = mmada_config(4096, MMADA_LAYERS), dream_config(3584, DREAM_LAYERS)
    found = {}
    for name, shapes in (
        ("mmada-8b-base", mmada_shapes(mmada)),
        ("dream-7b-instruct", meta_shapes(Qwen2ForCausalLM, dream.qwen2())),
    ):
        write_sharded(root / name, shapes, {})
        found[name] = len(locate_tensors(root / name, shapes))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--width",
        type=int,
        help=f"width of the transformers, a multiple of {HEAD_WIDTH}; default: the published ones",
    )
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="only write the checkpoints")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure)
        return
    if args.write:
        write_all(args.write, args.width, args.layers)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_all(Path(folder) / "measured", args.width, args.layers)
        children = [
            subprocess.run(
                [sys.executable, __file__, "--measure", str(Path(folder) / "measured" / name)],
                capture_output=True,
                text=True,
                check=True,
            )
            for name in LOADERS
        ]
        rows = [json.loads(child.stdout) for child in children]
        full = check_full_key_lists(Path(folder) / "full")
    if args.json:
        print(json.dumps({"loads": rows, "full_key_lists": full}))
        return
    print(
        f"{'checkpoint':20}{'files':>10}{'loaded':>10}{'peak over baseline':>20}"
        f"{'of the files':>14}{'seconds':>9}"
    )
    for row in rows:
        sizes = (
            f"{row['files'] / 1e9:>7.2f} GB{row['loaded'] / 1e9:>7.2f}"
            f" GB{row['extra'] / 1e9:>17.2f} GB"
        )
        print(f"{row['name']:20}{sizes}{row['extra'] / row['files']:>14.2f}{row['seconds']:>9.1f}")
    print(
        "all layers, headers only:",
        ", ".join(f"{name} {count} tensors" for name, count in full.items()),
    )


if __name__ == "__main__":
    main()
