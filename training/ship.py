"""Copies trained weights into the package.

python -m training.ship --tokenizer runs/tokenizer --prior runs/prior --text runs/text
python -m training.ship --documents runs/documents-annealed
python -m training.ship --photographs runs/photographs-annealed
python -m training.ship --denoiser runs/denoiser
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from aps_core.checkpoints.files import EMBEDDED

LIMIT_BYTES = {
    "image": 20_000_000,
    "text": 12_000_000,
    "documents": 16_000_000,
    "photographs": 16_000_000,
    "denoiser": 10_000_000,
}
"""The weights in each folder stay under this."""

CHECKPOINT = ("config.json", "model.safetensors")


def ship(run: Path, target: Path, names: tuple[str, ...]) -> None:
    """Copies one checkpoint folder, its log and its curves."""
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copyfile(run / name, target / name)
    shutil.copyfile(run / "curves.png", target.with_name(f"{target.name}-curves.png"))
    shutil.copyfile(run / "log.jsonl", target.with_name(f"{target.name}-log.jsonl"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", type=Path, help="run folder of training.tokenizer")
    parser.add_argument("--prior", type=Path, help="run folder of training.prior")
    parser.add_argument("--documents", type=Path, help="run folder of training.documents.prior")
    parser.add_argument("--photographs", type=Path, help="run folder of training.convolutional")
    parser.add_argument("--denoiser", type=Path, help="run folder of training.denoiser")
    parser.add_argument(
        "--text", type=Path, help="run folder of training.text; its judge model is not copied"
    )
    args = parser.parse_args()
    if args.tokenizer:
        ship(args.tokenizer, EMBEDDED / "image" / "tokenizer", CHECKPOINT)
    if args.prior:
        ship(args.prior, EMBEDDED / "image" / "mmada", (*CHECKPOINT, "tokenizer.json"))
    if args.documents:
        ship(args.documents, EMBEDDED / "documents" / "prior", CHECKPOINT)
    if args.photographs:
        ship(args.photographs, EMBEDDED / "photographs" / "prior", CHECKPOINT)
    if args.denoiser:
        ship(args.denoiser, EMBEDDED / "denoiser" / "prior", CHECKPOINT)
    if args.text:
        files = (*CHECKPOINT, "tokenizer.json")
        ship(args.text / "prior", EMBEDDED / "text" / "prior", files)
        ship(args.text / "reward", EMBEDDED / "text" / "reward", (*files, "tokenizer_config.json"))
    for name, limit in LIMIT_BYTES.items():
        size = sum(path.stat().st_size for path in (EMBEDDED / name).rglob("*.safetensors"))
        if size > limit:
            raise SystemExit(f"The {name} weights take {size:,} bytes; the limit is {limit:,}.")
        print(f"{size:,} bytes of weights in {EMBEDDED / name}")


if __name__ == "__main__":
    main()
