"""Copies trained weights into the package: the image models, the text models, or both.

python -m training.ship --tokenizer runs/tokenizer --prior runs/prior --text runs/text
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from aps_core.checkpoints.files import EMBEDDED

LIMIT_BYTES = 32_000_000
"""Maximum total size of all embedded weights in bytes."""

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
    parser.add_argument(
        "--text", type=Path, help="run folder of training.text; its judge model is not copied"
    )
    args = parser.parse_args()
    if args.tokenizer:
        ship(args.tokenizer, EMBEDDED / "image" / "tokenizer", CHECKPOINT)
    if args.prior:
        ship(args.prior, EMBEDDED / "image" / "mmada", (*CHECKPOINT, "tokenizer.json"))
    if args.text:
        for part in ("prior", "reward"):
            ship(args.text / part, EMBEDDED / "text" / part, (*CHECKPOINT, "tokenizer.json"))
    size = sum(path.stat().st_size for path in EMBEDDED.rglob("*.safetensors"))
    if size > LIMIT_BYTES:
        raise SystemExit(f"The embedded weights take {size:,} bytes; the limit is {LIMIT_BYTES:,}.")
    print(f"{size:,} bytes of weights in {EMBEDDED}")


if __name__ == "__main__":
    main()
