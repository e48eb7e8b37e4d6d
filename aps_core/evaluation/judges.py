"""Metrics of stylized pictures from installed weights: CLIP-T and DINO. ImageReward is not
supported.

The paper names the metrics but not the checkpoints; these are the usual ones of its benchmark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.checkpoints import checkpoint_cache
from aps_core.errors import WeightsMissing
from aps_core.imaging.resampling import resize
from aps_core.objectives.csd import CLIP_MEAN, CLIP_STD

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ClipText:
    """CLIP-T: cosine similarity between the embeddings of a picture and its prompt."""

    def __init__(self, device: torch.device) -> None:
        from transformers import CLIPModel, CLIPTokenizer

        folder = checkpoint_cache.path("clip-vit-l-14")
        self.model = _load(CLIPModel, folder, device)
        self.tokenizer = CLIPTokenizer.from_pretrained(folder, local_files_only=True)
        self.device = device

    @torch.no_grad()
    def __call__(self, x_BCHW: Tensor, prompt: str) -> Tensor:
        """CLIP-T (B,) of pictures in [-1, 1]."""
        size = self.model.config.vision_config.image_size
        text = self.tokenizer([prompt], truncation=True, return_tensors="pt").to(self.device)
        output = self.model(pixel_values=prepared(x_BCHW, size, CLIP_MEAN, CLIP_STD), **text)
        cosine_B: Tensor = (
            F.normalize(output.image_embeds, dim=-1) @ F.normalize(output.text_embeds, dim=-1)[0]
        )
        return cosine_B


class Dino:
    """DINO: cosine similarity between the class tokens of two pictures."""

    def __init__(self, device: torch.device) -> None:
        from transformers import ViTModel

        self.model = _load(
            ViTModel, checkpoint_cache.path("dino-vitb8"), device, add_pooling_layer=False
        )

    @torch.no_grad()
    def __call__(self, x_BCHW: Tensor, reference_BCHW: Tensor) -> Tensor:
        """DINO (B,) of pictures in [-1, 1], pairwise, or all against one reference."""
        size = self.model.config.image_size
        ours_BE, theirs_BE = (
            F.normalize(
                self.model(prepared(x, size, IMAGENET_MEAN, IMAGENET_STD)).last_hidden_state[:, 0],
                dim=-1,
            )
            for x in (x_BCHW, reference_BCHW)
        )
        cosine_B: Tensor = (ours_BE * theirs_BE).sum(-1)
        return cosine_B


def image_reward() -> None:
    """Not supported: ImageReward is published as a pickle for a package of its own.

    Raises:
        WeightsMissing: always.
    """
    raise WeightsMissing(
        "ImageReward is not loaded here: its weights are published as a pickle for the package"
        " image-reward; score the saved pictures with that."
    )


def prepared(x_BCHW: Tensor, size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Resizes the shorter side to ``size`` (antialiased bicubic), crops the centre square and
    normalises for a network.
    """
    height, width = x_BCHW.shape[-2:]
    scale = size / min(height, width)
    x = resize(
        x_BCHW,
        (max(size, round(height * scale)), max(size, round(width * scale))),
        deterministic=True,
    )
    top, left = (x.shape[-2] - size) // 2, (x.shape[-1] - size) // 2
    centre, shape = x[..., top : top + size, left : left + size], (3, 1, 1)
    return ((centre + 1) / 2 - centre.new_tensor(mean).view(shape)) / centre.new_tensor(std).view(
        shape
    )


def _load(network: Any, folder: Path, device: torch.device, **options: Any) -> Any:
    return (
        network.from_pretrained(folder, local_files_only=True, use_safetensors=True, **options)
        .to(device)
        .eval()
        .requires_grad_(False)
    )
