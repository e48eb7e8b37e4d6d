r"""Stage 1: trains the embedded MAGVIT-v2 tokenizer (lookup-free quantization) on random crops.

    python -m training.tokenizer --corpus CORPUS --out runs/tokenizer \
        --start aps_core/embedded/image/tokenizer
    python -m training.tokenizer --corpus CORPUS --out runs/tokenizer --anneal 15

The first command trains at a constant rate and may be stopped at any second and continued by the
same command; the second ends a copy of the run, with weights to ship.

The encoder's outputs pass through tanh during training only. Since ``sign(tanh(h)) == sign(h)``,
the saved network is an unmodified instance of the published class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from aps_core.evaluation.metrics import psnr, ssim
from aps_core.tokenizers.magvit2 import load_magvit
from aps_core.tokenizers.magvit2_net import LevelConfig, Magvit2, MagvitConfig
from training import corpus, runs
from training.loop import device_and_threads, mixed_precision, steps_done, train
from training.muon import muon_and_adamw

BITS = 12
ENTROPY_GROUP = 4
CONTINUOUS_WARMUP = 0.2
"""Initial share of the run in which some pictures skip quantization; their number falls to zero."""


LARGE_SHARE = 0.25
"""Share of the batches with 128-pixel crops at a constant rate; all of them while annealing. A
tokenizer that never saw whole pictures reconstructs them less well."""


def shape(ch: int, blocks: int, decoder_ch: int, decoder_blocks: int, bits: int) -> MagvitConfig:
    """One level at 4 pixels a token."""
    return MagvitConfig(
        ch=ch,
        decoder_ch=decoder_ch,
        patch=4,
        z_channels=bits,
        codebook_dim=bits,
        encoder=LevelConfig(ch_mult=(1,), num_res_blocks=(blocks,)),
        decoder=LevelConfig(ch_mult=(1,), num_res_blocks=(decoder_blocks,)),
    )


SHAPES = {
    "e160x6-d128x1": shape(160, 6, 128, 1, BITS),
    "e160x4-d160x4": shape(160, 4, 160, 4, BITS),
}
"""Encoder and decoder, channels by blocks. The decoder, which every inner step runs, has 39 % of
the FLOPs in the first; the second is the shape of version 0.1.0."""


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

    def __init__(
        self,
        model: Magvit2,
        draw: Callable[[], Tensor],
        device: torch.device,
        warmup: float = CONTINUOUS_WARMUP,
    ) -> None:
        """``draw``: a batch (B, 3, S, S) in [-1, 1]. ``warmup``: initial share of the run in which
        some pictures skip quantization; 0 for a trained encoder."""
        self.model = model
        self.draw = draw
        self.device = device
        self.warmup = warmup

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        x = self.draw().to(self.device)
        with mixed_precision(self.device):
            h = torch.tanh(self.model.encoder(x).float())
            code = torch.where(h > 0, 1.0, -1.0)
            quantized = h + (code - h).detach()
            continuous_share = max(0.0, 1 - share / self.warmup) if self.warmup else 0.0
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


def take_encoder(model: Magvit2, trained: Magvit2) -> None:
    """Copies the encoder of a trained tokenizer with as many or fewer residual blocks.

    The further blocks begin as identities (their last convolution is zero), so the codes begin as
    the trained ones. The decoder begins anew.
    """
    missing, unexpected = model.encoder.load_state_dict(trained.encoder.state_dict(), strict=False)
    if unexpected or not all(name.startswith("down.0.block.") for name in missing):
        raise ValueError(f"The encoders differ in more than blocks: {missing}, {unexpected}.")
    for name in missing:
        if ".conv2." in name:
            nn.init.zeros_(model.encoder.get_parameter(name))


class MixedCrops:
    """Batches of 64-pixel crops, or at times a quarter as many of 128 pixels."""

    def __init__(self, pictures: list[corpus.Picture], seed: int, large_share: float) -> None:
        self.small = corpus.CropSampler(pictures, 64, seed, min_scale=1.5)
        self.large = corpus.CropSampler(pictures, 128, seed + 1, min_scale=1.0)
        self.large_share = large_share

    def batch(self, count: int) -> Tensor:
        """(count, 3, 64, 64) or (count // 4, 3, 128, 128) in [-1, 1]."""
        if self.small.random.random() < self.large_share:
            return self.large.batch(max(1, count // 4))
        return self.small.batch(count)


def main() -> None:
    parser = runs.parser(__doc__, 1200, 16, "64-pixel crops a step (256 on a GPU)")
    parser.add_argument("--shape", choices=SHAPES, default=next(iter(SHAPES)))
    parser.add_argument("--start", type=Path, help="folder of a tokenizer whose encoder to take")
    args = parser.parse_args()
    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    out, schedule = runs.folder_and_schedule(args)
    model = Magvit2(SHAPES[args.shape]).to(device)
    if args.start and not steps_done(out):
        take_encoder(model, load_magvit(args.start, device, torch.float32).net)
    training, validation = corpus.load(args.corpus)
    held_out = torch.stack([corpus.square(p, 128) for p in validation]).to(device)
    large_share = 1.0 if args.anneal else LARGE_SHARE
    crops = MixedCrops(training, args.seed + steps_done(out), large_share)
    draw = partial(crops.batch, args.batch)
    loss = TokenizerLoss(model, draw, device, 0.0 if args.start else CONTINUOUS_WARMUP)

    def validated(averaged: nn.Module) -> dict[str, float]:
        assert isinstance(averaged, Magvit2)
        export(averaged, out)  # the next stage can begin on interim weights
        return validate(averaged, held_out)

    optimizers = optimizers_for(model, args.rate)
    train(model, loss, optimizers, out, schedule, validated, validate_every_minutes=10)


if __name__ == "__main__":
    main()
