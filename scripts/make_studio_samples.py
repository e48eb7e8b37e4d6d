"""Makes the studio's sample pictures: photographs degraded by known operators, and the settings that undo them.

Writes ``service/ui/samples/``: one PNG a sample (lossless, so that its noise stays what it is) and ``index.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from aps_core import images, noise
from aps_core.operators import OperatorSpec

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "service" / "ui" / "samples"
SIZE = 128
"""Side of the restored pictures: the embedded prior's native size."""
SAMPLES: dict[str, tuple[dict[str, Any], float]] = {
    "coffee": ({"type": "super_resolution", "factor": 4}, 0.05),
    "chelsea": ({"type": "gaussian_blur", "sigma": 1.5}, 0.05),
    "rocket": ({"type": "hdr", "scale": 2.0}, 0.02),
    "astronaut": ({"type": "inpainting", "mask": "random", "fraction": 0.6}, 0.05),
}


def degrade(name: str, operator: dict[str, Any], sigma: float) -> Image.Image:
    """The photograph ``name`` at SIZE, measured; missing pixels become transparent."""
    photo = images.open_image((ROOT / "examples" / "photos" / f"{name}.png").read_bytes())
    x = images.resize(images.to_tensor(photo), (SIZE, SIZE)).clamp(-1, 1)
    bound = OperatorSpec.family[operator["type"]].model_validate(operator).bind(x.shape)  # type: ignore[attr-defined]
    y = noise.add_noise(bound(x[None])[0], sigma, torch.Generator().manual_seed(1))
    picture = images.to_pil(y)
    if bound.weight is not None:
        known = bound.weight.expand(1, 1, *y.shape[-2:])[0, 0]
        picture.putalpha(Image.fromarray(known.mul(255).to(torch.uint8).numpy()))
    return picture


def main() -> None:
    """Writes all samples."""
    index = []
    for name, (operator, sigma) in SAMPLES.items():
        degrade(name, operator, sigma).save(FOLDER / f"{name}.png", optimize=True)
        # the picture brings its missing pixels along as transparency, so any device sees the same ones
        sent = {"type": "inpainting", "mask": "upload"} if operator["type"] == "inpainting" else operator
        index.append({"name": name, "file": f"{name}.png", "spec": {"operator": sent, "sigma": sigma}})
    (FOLDER / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
