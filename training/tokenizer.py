"""Stage 1: trains the embedded MAGVIT-v2 tokenizer (lookup-free quantization) on random crops.

    python -m training.tokenizer --corpus CORPUS --out runs/tokenizer --minutes 60

The encoder's outputs pass through tanh during training only. Since ``sign(tanh(h)) == sign(h)``,
the saved network is an unmodified instance of the published class.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from aps_core.evaluation.metrics import psnr, ssim
from aps_core.tokenizers.magvit2_net import LevelConfig, Magvit2, MagvitConfig
from training import corpus
from training.loop import device_and_threads, train
from training.muon import muon_and_adamw
from training.schedule import Cosine

BITS = 12
ENTROPY_GROUP = 4
CONTINUOUS_WARMUP = 0.2
"""Initial share of the run in which some pictures skip quantization; their number falls to zero."""


def _shape(ch: int, patch: int, mults: tuple[int, ...], blocks: tuple[int, ...]) -> MagvitConfig:
    level = LevelConfig(ch_mult=mults, num_res_blocks=blocks)
    return MagvitConfig(
        ch=ch, patch=patch, z_channels=BITS, codebook_dim=BITS, encoder=level, decoder=level
    )


SHAPES = {
    "p4-160": _shape(160, 4, (1,), (4,)),
    "p4-192": _shape(192, 4, (1,), (3,)),
    "p2-64": _shape(64, 2, (1, 2), (1, 3)),
}
"""The compared networks, all with 4x4 pixels per token; see the model card."""


def reconstruction_loss(x: Tensor, truth: Tensor) -> Tensor:
    """L1 + 5 L2 + 0.3 multi-scale L1 + 0.3 gradient difference + 0.15 (1 - SSIM)."""
    loss = F.l1_loss(x, truth) + 5 * F.mse_loss(x, truth)
    for scale in (2, 4):
        loss = loss + 0.15 * F.l1_loss(F.avg_pool2d(x, scale), F.avg_pool2d(truth, scale))
    for dim in (-1, -2):
        loss = loss + 0.15 * F.l1_loss(x.diff(dim=dim), truth.diff(dim=dim))
    return loss + 0.15 * (1 - ssim(x, truth).mean())


def entropies(h_BDhw: Tensor) -> tuple[Tensor, Tensor]:
    """(per-token, batch) entropy in nats; the batch entropy is exact within groups of bits.

    Bits are independent given the latent, so the joint distribution of a group is an outer product.
    Maximising only per-bit entropies would allow several bits to carry the same information.
    """
    p = torch.sigmoid(4 * h_BDhw.transpose(0, 1).flatten(1)).clamp(1e-6, 1 - 1e-6)  # (D, tokens)
    token = -(p * p.log() + (1 - p) * (1 - p).log()).sum(0).mean()
    batch = p.new_zeros(())
    for group in p.split(ENTROPY_GROUP):
        joint = p.new_ones(1, p.shape[1])
        for bit in group:
            joint = torch.cat([joint * (1 - bit), joint * bit])
        q = joint.mean(1)
        batch = batch - (q * (q + 1e-9).log()).sum()
    return token, batch


class TokenizerLoss:
    """Draws a batch and computes the training loss."""

    def __init__(self, model: Magvit2, draw: Callable[[], Tensor], device: torch.device) -> None:
        """``draw``: a batch (B, 3, S, S) in [-1, 1]."""
        self.model = model
        self.draw = draw
        self.device = device

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        x = self.draw().to(self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            h = torch.tanh(self.model.encoder(x).float())
            code = torch.where(h > 0, 1.0, -1.0)
            quantized = h + (code - h).detach()
            continuous_share = max(0.0, 1 - share / CONTINUOUS_WARMUP)
            continuous = torch.rand(len(x), 1, 1, 1, device=self.device) < continuous_share
            latent = torch.where(continuous, h + 0.15 * torch.randn_like(h), quantized)
            y = self.model.decoder(latent).float()
        token, batch = entropies(h)
        anneal = 0.2 + 0.8 * (0.5 + 0.5 * math.cos(math.pi * share))
        reconstruction = reconstruction_loss(y, x)
        commitment = (h - code).square().mean()
        loss = reconstruction + anneal * 0.02 * (0.5 * token - batch) + 0.15 * commitment
        return loss, {
            "reconstruction": reconstruction.item(),
            "token_entropy": token.item(),
            "batch_entropy": batch.item(),
            "commitment": commitment.item(),
        }


@torch.no_grad()
def validate(model: nn.Module, x_BCHW: Tensor) -> dict[str, float]:
    """Encodes and decodes whole pictures: PSNR, SSIM, share of codes used, largest bit bias."""
    assert isinstance(model, Magvit2)
    decoded, bits = [], []
    for x in x_BCHW.split(8):
        code = torch.where(model.encoder(x) > 0, 1.0, -1.0)
        decoded.append(model.decoder(code).clamp(-1, 1))
        bits.append(code.transpose(0, 1).flatten(1) > 0)
    y, bit = torch.cat(decoded), torch.cat(bits, dim=1).float()
    codes = (bit * 2 ** torch.arange(len(bit), device=bit.device)[:, None]).sum(0)
    return {
        "psnr": psnr(y, x_BCHW).mean().item(),
        "ssim": ssim(y, x_BCHW).mean().item(),
        "codes_used": len(codes.unique()) / 2 ** len(bit),
        "bit_bias": (bit.mean(1) - 0.5).abs().max().item(),
    }


def optimizers_for(model: Magvit2, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the convolutions between the first and the last, AdamW for the rest."""
    outer = ("conv_in.weight", "conv_out.weight", "quant_conv.weight")
    parameters = model.named_parameters()
    hidden = [p for name, p in parameters if p.ndim == 4 and not name.endswith(outer)]
    return muon_and_adamw(model, hidden, rate, 1e-3)


def export(model: Magvit2, out: Path) -> None:
    """Writes ``model.safetensors`` in half precision and ``config.json``, each atomically."""
    weights, config = out / "model.safetensors", out / "config.json"
    halves = {k: v.half().contiguous() for k, v in model.state_dict().items()}
    save_file(halves, weights.with_suffix(".tmp"))
    weights.with_suffix(".tmp").replace(weights)
    config.write_text(model.config.model_dump_json(indent=1, exclude_none=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        required=True,
        help="folder with photos_train.zip and icons_train.zip",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="run folder; a previous run in it is resumed"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60,
        help="compute budget (10 on a data-centre GPU, 60 on two CPU cores)",
    )
    parser.add_argument("--shape", choices=SHAPES, default="p4-160")
    parser.add_argument(
        "--crop", type=int, default=64, help="side length of crops in pixels (128 on a GPU)"
    )
    parser.add_argument("--batch", type=int, default=16, help="crops per step (256 on a GPU)")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    training, validation = corpus.load(args.corpus)
    held_out = torch.stack([corpus.square(p, 128) for p in validation]).to(device)
    model = Magvit2(SHAPES[args.shape]).to(device)
    crops = corpus.CropSampler(training, args.crop, args.seed, min_scale=1.5)
    loss = TokenizerLoss(model, lambda: crops.batch(args.batch), device)
    averaged = train(
        model,
        loss,
        optimizers_for(model, args.rate),
        args.out,
        Cosine(args.minutes),
        lambda m: validate(m, held_out),
    )
    assert isinstance(averaged, Magvit2)
    export(averaged, args.out)


if __name__ == "__main__":
    main()
