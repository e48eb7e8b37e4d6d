r"""Tests before a long training how much a prior can add: what do decided neighbours say beyond the
measurement?

    python -m training.documents.gate --corpus CORPUS --tokenizer runs/documents-tokenizer \
        --out runs/documents-gate --task super_resolution

A small convolutional network predicts tokens from a measurement and revealed neighbours, each
dropped at random, so that one network answers with either, both or none. The gain of neighbours
beside the measurement, in nats a token on withheld pictures, bounds what a prior can add to a
sampler's evidence; below 0.5 a prior is not worth training. The network is small and briefly
trained, so its gain is an estimate, not a limit.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from aps_core.operators.base import OperatorSpec
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.super_resolution import SuperResolution
from aps_core.priors.embedded.image import fast_dtype
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.tokenizers.magvit2_net import ResBlock
from training import runs
from training.documents.crops import DocumentCrops
from training.documents.tokenizer import held_out
from training.loop import device_and_threads, steps_done, train
from training.muon import muon_and_adamw
from training.prior_network import SharedBits
from training.schedule import Cosine

SIGMA = 0.05
"""Noise of the measurement, pictures in [-1, 1]."""

SIDE = 128

TASKS: dict[str, OperatorSpec] = {
    "super_resolution": SuperResolution(factor=4),
    "gaussian_blur": GaussianBlur(sigma=3.0),
}

CASES = {
    "nothing": (False, 0.0),
    "measurement": (True, 0.0),
    "neighbours": (False, 0.5),
    "half": (True, 0.5),
    "most": (True, 0.9),
}
"""(measurement shown, share of tokens revealed) of each reported value."""


class GateNet(nn.Module):
    """Logits of every token from a measurement of the same size and the revealed tokens' bits."""

    def __init__(self, bits: int, stride: int, width: int, blocks: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv_in = nn.Conv2d(3 * stride**2 + 1 + bits + 1, width, 3, padding=1)
        self.blocks = nn.Sequential(*(ResBlock(width, width) for _ in range(blocks)))
        self.head = nn.Linear(width, 2**bits)
        parametrize.register_parametrization(self.head, "weight", SharedBits(bits, width, 0))

    def forward(self, y_BCHW: Tensor, shown_B: Tensor, bits_BLb: Tensor, kept_BL: Tensor) -> Tensor:
        """Hidden states (B, L, width); :attr:`head` makes logits of those that are wanted."""
        batch, _, height, width = y_BCHW.shape
        grid = (height // self.stride, width // self.stride)
        shown = shown_B.float().reshape(batch, 1, 1, 1)
        kept = kept_BL.float()[..., None]
        seen = torch.cat([bits_BLb * kept, kept], -1).transpose(1, 2).unflatten(2, grid)
        flags = shown.expand(batch, 1, *grid)
        x = torch.cat([F.pixel_unshuffle(y_BCHW, self.stride) * shown, flags, seen], 1)
        hidden: Tensor = self.blocks(self.conv_in(x)).flatten(2).transpose(1, 2)
        return hidden


class Gate:
    """Draws measurements and computes the cross-entropy of hidden tokens."""

    def __init__(
        self, tokenizer: MagvitTokenizer, net: GateNet, spec: OperatorSpec, seed: int
    ) -> None:
        self.tokenizer = tokenizer
        self.net = net
        self.generator = torch.Generator().manual_seed(seed)
        self.operator = spec.bind((3, SIDE, SIDE))

    def measured(self, x_BCHW: Tensor) -> Tensor:
        """The noisy measurement, brought to the picture's size."""
        y = self.operator(x_BCHW)
        y = y + SIGMA * torch.randn(y.shape, generator=self.generator)
        return F.interpolate(y, x_BCHW.shape[2:], mode="bicubic", align_corners=False)

    def nll(self, x_BCHW: Tensor, shown_B: Tensor, kept_BL: Tensor) -> Tensor:
        """Mean cross-entropy of the tokens that are not revealed."""
        codes_BL = self.tokenizer.encode(x_BCHW)
        bits_BLb = self.tokenizer.codebook_KD[codes_BL]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden_BLD = self.net(self.measured(x_BCHW), shown_B, bits_BLb, kept_BL)
            logits_NK = self.net.head(hidden_BLD[~kept_BL])
        return F.cross_entropy(logits_NK.float(), codes_BL[~kept_BL])

    def masks(self, batch: int, share_B: Tensor) -> Tensor:
        """Which tokens are revealed, (B, L)."""
        tokens = (SIDE // self.tokenizer.stride) ** 2
        return torch.rand(batch, tokens, generator=self.generator) < share_B[:, None]

    def validate(self, pictures: dict[str, Tensor]) -> dict[str, float]:
        """Nats a token on each set in each case, the same pictures, noise and masks every time."""
        self.generator.manual_seed(1)
        scores = {}
        with torch.no_grad():
            for name, x in pictures.items():
                for case, (shown, share) in CASES.items():
                    kept = self.masks(len(x), torch.full((len(x),), share))
                    nll = self.nll(x, torch.full((len(x),), shown), kept)
                    scores[f"{case}_{name}"] = nll.item()
                for case in ("half", "most"):
                    gain = scores[f"measurement_{name}"] - scores[f"{case}_{name}"]
                    scores[f"gain_{case}_{name}"] = gain
        return scores


def main() -> None:
    parser = runs.parser(__doc__, 15, 4, "128-pixel crops a step")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer's run folder")
    parser.add_argument("--task", choices=TASKS, default="super_resolution")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=6)
    args = parser.parse_args()

    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = load_magvit(args.tokenizer, device, fast_dtype(device))
    net = GateNet(tokenizer.codebook_KD.shape[1], tokenizer.stride, args.width, args.blocks)
    seed = args.seed + steps_done(args.out)
    gate = Gate(tokenizer, net, TASKS[args.task], seed)
    crops = DocumentCrops.of(args.corpus / "tiles", seed)
    pictures = {name: x[:16] for name, x in held_out(args.corpus).items()}

    def loss(share: float) -> tuple[Tensor, dict[str, float]]:
        """A fifth of the pictures without measurement; none, some or most neighbours revealed."""
        x = crops.batch(args.batch, SIDE)
        draw = torch.rand(3, args.batch, generator=gate.generator)
        kept = gate.masks(args.batch, draw[0] * (draw[1] < 0.6))
        nll = gate.nll(x, draw[2] < 0.8, kept)
        return nll, {"nll": nll.item()}

    hidden = [p for p in net.blocks.parameters() if p.ndim == 4]
    optimizers = muon_and_adamw(net, hidden, args.rate, 0.01)

    def validated(averaged: nn.Module) -> dict[str, float]:
        gate.net = averaged  # type: ignore[assignment]
        scores = gate.validate(pictures)
        gate.net = net
        return scores

    train(
        net, loss, optimizers, args.out, Cosine(args.minutes), validated, validate_every_minutes=3
    )


if __name__ == "__main__":
    main()
