"""Copies trained weights into the package.

python -m training.ship --tokenizer runs/tokenizer --prior runs/prior
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from aps_core.weights import EMBEDDED

LIMIT_BYTES = 32_000_000
"""All embedded weights together stay under this."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--prior", type=Path, required=True)
    args = parser.parse_args()
    for source, part, names in (
        (args.tokenizer, "tokenizer", ("config.json", "model.safetensors")),
        (args.prior, "mmada", ("config.json", "model.safetensors", "tokenizer.json")),
    ):
        target = EMBEDDED / "image" / part
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copyfile(source / name, target / name)
        shutil.copyfile(source / "curves.png", EMBEDDED / "image" / f"{part}-curves.png")
        shutil.copyfile(source / "log.jsonl", EMBEDDED / "image" / f"{part}-log.jsonl")
    size = sum(path.stat().st_size for path in EMBEDDED.rglob("*.safetensors"))
    if size > LIMIT_BYTES:
        raise SystemExit(f"The embedded weights take {size:,} bytes; the limit is {LIMIT_BYTES:,}.")
    print(f"{size:,} bytes of weights in {EMBEDDED}")


if __name__ == "__main__":
    main()
