"""The denoiser of photographs: white noise of any level, and what remains of it in every pixel.

    python -m training.denoiser --corpus CORPUS --out runs/denoiser --minutes 84 --end 50

The rate is constant until ``--end`` minutes before the end, then falls to zero. A run goes on by
the same command, with more minutes; SIGTERM or ``touch OUT/STOP`` end it early.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import random
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn

from aps_core.priors.denoising.network import (
    LEAST_SIGMA,
    DenoiserConfig,
    DenoiserNet,
    channels_last,
)
from training import corpus
from training.loop import Values, steps_done, train
from training.muon import muon_and_adamw
from training.schedule import Anneal

SIZE = 64
SCALES = {1.0: 0.2, 0.75: 0.25, 0.55: 0.3, 0.4: 0.25}
"""Photographs are seen reduced, with these weights. Reduced ones are sharper."""
ICONS, DRAWN = 0.07, 0.05
"""Shares of crops of icons, and of drawn type and areas."""
LEVELS = LEAST_SIGMA, 0.6
"""Least and largest deviation of the noise in training."""
FLOOR = 0.005
"""Error relative to the noise's, below which pictures need not become better."""
JUDGED = 0.1
"""Weight of the deviation's likelihood, whose gradient reaches its own layers only."""
TRIED = (0.05, 0.1, 0.2, 0.4)
WITHHELD = 16


def withheld(folder: Path) -> list[str]:
    """Sixteen names of pictures for the curve, drawn from all kinds of them."""
    with zipfile.ZipFile(folder / "photos_train.zip") as archive:
        names = sorted(n for n in archive.namelist() if n.endswith(".webp"))
    random.Random(0).shuffle(names)
    return names[:WITHHELD]


def curve_pictures(folder: Path) -> Tensor:
    """Those of :func:`withheld` at 128 by 128, in [-1, 1]."""
    with zipfile.ZipFile(folder / "photos_train.zip") as archive:
        small = [
            Image.open(io.BytesIO(archive.read(name)))
            .convert("RGB")
            .resize((128, 128), Image.Resampling.LANCZOS)
            for name in withheld(folder)
        ]
    x_BHWC = torch.from_numpy(np.stack([np.asarray(image) for image in small]))
    return x_BHWC.permute(0, 3, 1, 2).float() / 127.5 - 1


def drawn(seed: int) -> Tensor:
    """A picture (3, 256, 256) of type, lines and areas in flat colours, as uint8."""
    rng = random.Random(seed)

    def colour() -> tuple[int, int, int]:
        return rng.randrange(256), rng.randrange(256), rng.randrange(256)

    image = Image.new("RGB", (512, 512), rng.choice([(255, 255, 255), (20, 20, 24), colour()]))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randrange(2, 14)):
        x, y = rng.randrange(-64, 512), rng.randrange(-64, 512)
        box = (x, y, x + rng.randrange(8, 300), y + rng.randrange(8, 300))
        kind, width = rng.randrange(3), rng.randrange(1, 7)
        if kind == 0:
            draw.line(box, fill=colour(), width=width)
        elif kind == 1:
            draw.rectangle(box, fill=colour(), outline=colour(), width=width)
        else:
            draw.ellipse(box, fill=colour(), outline=colour(), width=width)
    for _ in range(rng.randrange(4, 20)):
        font = ImageFont.load_default(rng.choice([14, 18, 24, 32, 48, 80]))
        word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIKLMNPRST 0123456789", k=24))
        ink = rng.choice([(0, 0, 0), (255, 255, 255), colour()])
        draw.text((rng.randrange(-40, 400), rng.randrange(0, 500)), word, fill=ink, font=font)
    image = image.resize((256, 256), Image.Resampling.LANCZOS)
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)


class Crops:
    """Draws crops (B, 3, 64, 64) in [-1, 1] of pictures that were reduced once, at the start."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        pictures, _ = corpus.load(folder, icons=True)
        hidden = set(withheld(folder))
        rows = map(json.loads, (folder / "photos_train.jsonl").read_text().splitlines())
        sources = {row["src"] for row in rows if row["file"] in hidden}
        photographs = [p for p in pictures if p.group != "icon" and p.source not in sources]
        icons = [p.pixels for p in pictures if p.group == "icon"]
        groups = {
            scale: [_reduced(p.pixels, scale) for p in photographs if _fits(p.pixels, scale)]
            for scale in SCALES
        }
        share = 1 - ICONS - DRAWN
        self.groups = [*groups.values(), icons, [drawn(i) for i in range(400)]]
        self.weights = [*(share * w for w in SCALES.values()), ICONS, DRAWN]

    def crop(self) -> Tensor:
        """One crop (3, 64, 64) as uint8."""
        (group,) = self.random.choices(self.groups, self.weights)
        x_CHW = self.random.choice(group)
        top, left = (self.random.randint(0, n - SIZE) for n in x_CHW.shape[1:])
        x_CHW = x_CHW[:, top : top + SIZE, left : left + SIZE]
        x_CHW = x_CHW.flip([d for d in (1, 2) if self.random.random() < 0.5])
        return x_CHW.transpose(1, 2) if self.random.random() < 0.5 else x_CHW

    def batch(self, count: int) -> Tensor:
        """So many crops in [-1, 1]."""
        return torch.stack([self.crop() for _ in range(count)]).float() / 127.5 - 1


def _fits(x_CHW: Tensor, scale: float) -> bool:
    return min(x_CHW.shape[1:]) * scale >= SIZE + 8


def _reduced(x_CHW: Tensor, scale: float) -> Tensor:
    if scale == 1:
        return x_CHW
    size = [round(n * scale) for n in x_CHW.shape[1:]]
    x_1CHW = F.interpolate(x_CHW[None].float(), size, mode="bicubic", antialias=True)
    return x_1CHW[0].round().clamp(0, 255).byte()


class DenoisingLoss:
    """Logarithm of the error of pictures relative to the noise, and likelihood of deviations."""

    def __init__(self, net: DenoiserNet, crops: Crops, batch: int, seed: int) -> None:
        self.net = net
        self.crops = crops
        self.batch = batch
        self.generator = Generator().manual_seed(seed)

    def __call__(self, share: float) -> tuple[Tensor, Values]:
        x_BCHW = self.crops.batch(self.batch)
        low, high = map(math.log, LEVELS)
        # spread evenly over the batch: steps are less different
        at_B = (torch.arange(self.batch) + torch.rand(self.batch, generator=self.generator)) / (
            self.batch
        )
        sigma_B = torch.exp(low + (high - low) * at_B)
        noise_BCHW = torch.randn(x_BCHW.shape, generator=self.generator)
        noisy_BCHW = x_BCHW + sigma_B[:, None, None, None] * noise_BCHW
        mean_BCHW, deviation_B1HW = self.net(
            noisy_BCHW.contiguous(memory_format=torch.channels_last), sigma_B
        )
        error_BCHW = (mean_BCHW - x_BCHW).square()
        relative_B = error_BCHW.mean((1, 2, 3)) / sigma_B.square()
        error = torch.log(relative_B + FLOOR).mean()
        square_B1HW = error_BCHW.detach().mean(1, keepdim=True)
        surprise = (deviation_B1HW.log() + square_B1HW / (2 * deviation_B1HW.square())).mean()
        return error + JUDGED * surprise, {"error": error.detach(), "surprise": surprise.detach()}


@torch.no_grad()
def validate(net: nn.Module, x_BCHW: Tensor) -> dict[str, float]:
    """PSNR in dB at every level of :data:`TRIED`, and the mean logarithm of z scores' squares."""
    noise_BCHW = torch.randn(x_BCHW.shape, generator=Generator().manual_seed(0))
    scores = {}
    for sigma in TRIED:
        sigma_B = torch.full((len(x_BCHW),), sigma)
        noisy_BCHW = (x_BCHW + sigma * noise_BCHW).contiguous(memory_format=torch.channels_last)
        mean_BCHW, deviation_B1HW = net(noisy_BCHW, sigma_B)
        error_BCHW = (mean_BCHW - x_BCHW).square()
        psnr_B = 10 * torch.log10(4 / error_BCHW.mean((1, 2, 3)))
        scores[f"psnr_{sigma}"] = float(psnr_B.mean())
        scores[f"z2_{sigma}"] = float((error_BCHW / deviation_B1HW.square()).mean())
    return scores


def export(net: nn.Module, out: Path, config: DenoiserConfig) -> None:
    """Writes ``model.safetensors`` in half precision and ``config.json``."""
    halves = {key: value.half().contiguous() for key, value in net.state_dict().items()}
    save_file(halves, out / "model.safetensors")
    (out / "config.json").write_text(config.model_dump_json(indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=84)
    parser.add_argument("--end", type=float, default=30, help="minutes in which the rate falls")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--validate-every", type=float, default=3, help="minutes")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, help="folder of a trained denoiser to start from")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    config = DenoiserConfig()
    net = DenoiserNet(config)
    channels_last(net)
    if args.start and not steps_done(args.out):
        net.load_state_dict(load_file(args.start / "model.safetensors"))
    print(sum(p.numel() for p in net.parameters()) / 1e6, "M parameters", flush=True)
    seed = args.seed + steps_done(args.out)
    loss = DenoisingLoss(net, Crops(args.corpus, seed), args.batch, seed)
    outside = ("embed.", "head.", "judge.")
    hidden = [p for name, p in net.named_parameters() if not name.startswith(outside)]
    train(
        net,
        loss,
        muon_and_adamw(net, hidden, args.rate, 0.01),
        args.out,
        Anneal(args.minutes - args.end, args.minutes),
        partial(validate, x_BCHW=curve_pictures(args.corpus)),
        ema_decay=0.997,
        validate_every_minutes=args.validate_every,
        export=partial(export, config=config),
    )


if __name__ == "__main__":
    main()
