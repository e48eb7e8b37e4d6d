"""A short training run of the embedded image priors: checks that both stages run and resume, and
that their results can be loaded.

    python -m benchmarks.gpu_training --out proof.json

The corpus consists of crops of the example photographs, so the trained prior is useless.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from aps_core.priors.mmada.network import load_mmada
from aps_core.tokenizers.magvit2 import load_magvit

ROOT = Path(__file__).parents[1]
PHOTOS = ROOT / "examples" / "photos"
PIECES = 3
"""Each photograph is cut into this many crops per side, treated as separate sources."""


def corpus(folder: Path) -> Path:
    """Writes the files that ``training.corpus`` reads."""
    pieces: list[tuple[str, Image.Image]] = []
    for path in sorted(PHOTOS.glob("*.png")):
        picture = Image.open(path).convert("RGB")
        width, height = (size // PIECES for size in picture.size)
        for i in range(PIECES**2):
            left, top = i % PIECES * width, i // PIECES * height
            piece = picture.crop((left, top, left + width, top + height)).resize((160, 160))
            pieces.append((f"{path.stem}-{i}.png", piece))
    for name, chosen, group in (
        ("photos_train", pieces, "photo"),
        ("icons_train", pieces[:4], "icon"),
    ):
        rows = []
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            for file, picture in chosen:
                buffer = io.BytesIO()
                picture.save(buffer, "PNG")
                archive.writestr(file, buffer.getvalue())
                rows.append(
                    {"file": file, "group": group, "src": file, "caption": file.split("-")[0]}
                )
        lines = "\n".join(map(json.dumps, rows))
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def stage(name: str, out: Path, *arguments: str) -> dict[str, Any]:
    """Runs a stage; returns the last line of its log and the number of lines."""
    command = [sys.executable, "-m", f"training.{name}", "--out", str(out), *arguments]
    subprocess.run(command, check=True, cwd=ROOT)
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return {"last": rows[-1], "lines": len(rows)}


def trained(folder: Path, tiny: bool) -> dict[str, Any]:
    """Runs both stages, the first one with a resumption, then loads their results.

    Raises:
        CalledProcessError: a stage failed.
        WeightsInvalid: its result cannot be loaded.
    """
    where = ["--corpus", str(corpus(folder))]
    minutes = (0.005, 0.01) if tiny else (1.0, 1.5)
    size = ("--batch", "2") if tiny else ("--batch", "256")
    tokenizer, prior = folder / "tokenizer", folder / "prior"
    told: dict[str, Any] = {}
    for part, budget in zip(("tokenizer", "tokenizer resumed"), minutes, strict=True):
        told[part] = stage("tokenizer", tokenizer, *where, *size, "--minutes", str(budget))
    few = ("--batch", "1", "--width", "64", "--layers", "1") if tiny else ("--batch", "128")
    told["prior"] = stage(
        "prior", prior, *where, *few, "--tokenizer", str(tokenizer), "--minutes", str(minutes[0])
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parts = load_magvit(tokenizer, device, torch.float32)
    model = load_mmada(prior, parts, device, torch.float32)
    z_BL = torch.full((1, 1024), -1, device=device)
    ask = {"grid": (32, 32), "mask_fraction": 1.0, "condition": "", "guidance_scale": 0.0}
    told["finite"] = bool(torch.isfinite(model.logits(z_BL, **ask)).all())  # type: ignore[arg-type]
    told["device"] = str(device)
    return told


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="run for about a second")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        told = trained(Path(folder), args.tiny)
    text = json.dumps(told, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text)
    sys.exit(not told["finite"])


if __name__ == "__main__":
    main()
