"""Style vectors of pictures (CSD), and an objective that moves a picture towards a reference's
style.

The Contrastive Style Descriptor is a CLIP vision transformer with two projections, for style and
content (Somepalli et al. 2024, "Measuring Style Similarity in Diffusion Models"). The network is
transformers' CLIP; checkpoints keep their published key names.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.networks import differentiable
from aps_core.errors import InvalidSpec
from aps_core.imaging.resampling import resize

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


class CSDConfig(BaseModel):
    """Shape of the network. The defaults are the published CSD ViT-L/14."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    image_size: int = 224
    patch_size: int = 14
    width: int = 1024
    layers: int = 24
    heads: int = 16
    output_dim: int = 768
    layer_norm_eps: float = 1e-5

    def clip(self) -> CLIPVisionConfig:
        """The same network as a transformers configuration."""
        return CLIPVisionConfig(
            hidden_size=self.width,
            intermediate_size=4 * self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            image_size=self.image_size,
            patch_size=self.patch_size,
            projection_dim=self.output_dim,
            layer_norm_eps=self.layer_norm_eps,
            hidden_act="quick_gelu",
        )

    def published_shapes(self) -> dict[str, tuple[int, ...]]:
        """Key and shape of every tensor of a CSD checkpoint."""
        w = self.width
        shapes: dict[str, tuple[int, ...]] = {
            "backbone.class_embedding": (w,),
            "backbone.positional_embedding": ((self.image_size // self.patch_size) ** 2 + 1, w),
            "backbone.conv1.weight": (w, 3, self.patch_size, self.patch_size),
            "last_layer_style": (w, self.output_dim),
            "last_layer_content": (w, self.output_dim),
        }
        shapes |= {
            f"backbone.{norm}.{kind}": (w,)
            for norm in ("ln_pre", "ln_post")
            for kind in ("weight", "bias")
        }
        for i in range(self.layers):
            block = f"backbone.transformer.resblocks.{i}."
            shapes |= {
                block + "attn.in_proj_weight": (3 * w, w),
                block + "attn.in_proj_bias": (3 * w,),
            }
            for layer, rows, columns in (
                ("attn.out_proj", w, w),
                ("mlp.c_fc", 4 * w, w),
                ("mlp.c_proj", w, 4 * w),
            ):
                shapes |= {
                    f"{block}{layer}.weight": (rows, columns),
                    f"{block}{layer}.bias": (rows,),
                }
            shapes |= {
                f"{block}{norm}.{kind}": (w,)
                for norm in ("ln_1", "ln_2")
                for kind in ("weight", "bias")
            }
        return shapes


class StyleDescriptor:
    """Maps pictures to unit-length style and content vectors. Weights are frozen; gradients flow to
    the pictures.
    """

    def __init__(self, model: CLIPVisionModelWithProjection, content_ED: Tensor, size: int) -> None:
        self.model = model.eval().requires_grad_(False)
        self.content_ED = content_ED
        weight = model.visual_projection.weight
        self.size = size
        self.mean = torch.tensor(CLIP_MEAN, device=weight.device).view(3, 1, 1)
        self.std = torch.tensor(CLIP_STD, device=weight.device).view(3, 1, 1)

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Style and content, each (B, E), of pictures (B, 3, H, W) in [-1, 1] of any size."""
        _, style_BE, content_BE = self.encode(self.preprocess(x_BCHW))
        return style_BE, content_BE

    def preprocess(self, x_BCHW: Tensor) -> Tensor:
        """Resizes the shorter side to 224 (antialiased bicubic), crops the centre square and
        normalises as CLIP does; differentiable.
        """
        height, width = x_BCHW.shape[-2:]
        scale = self.size / min(height, width)
        size = (max(self.size, round(height * scale)), max(self.size, round(width * scale)))
        x = resize(x_BCHW, size, deterministic=True)
        top, left = (size[0] - self.size) // 2, (size[1] - self.size) // 2
        centre = x[..., top : top + self.size, left : left + self.size]
        return ((centre + 1) / 2 - self.mean) / self.std

    def encode(self, normalised_BCHW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Feature (B, D), style (B, E) and content (B, E) of preprocessed pictures."""
        feature_BD = self.model.vision_model(pixel_values=normalised_BCHW).pooler_output
        return (
            feature_BD,
            F.normalize(self.model.visual_projection(feature_BD), dim=-1),
            F.normalize(feature_BD @ self.content_ED.T, dim=-1),
        )


class StyleObjective:
    """Cosine distance between the style of the decoded picture and of a reference; see
    :class:`aps_core.types.Objective`.

    The loss is the distance times the number of values in the picture, the magnitude of the
    measurement objective's sum. With the bare distance, gradients of improbable codes would fall
    below Adam's epsilon and vanish.
    """

    def __init__(self, descriptor: StyleDescriptor, reference_CHW: Tensor) -> None:
        self.descriptor = descriptor
        self.noise_floor = self.temperature = 0.0
        with torch.no_grad():
            self.target_E = descriptor(reference_CHW[None])[0][0]  # constant: computed once

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and misfit per sample, each (B,). The misfit is 1 - cosine, in [0, 2]."""
        distance_B = 1 - self.descriptor(x_BCHW)[0] @ self.target_E
        return distance_B * math.prod(x_BCHW.shape[1:]), distance_B.detach()


def load_csd(
    path: Path, device: torch.device | str = "cpu", config: CSDConfig | None = None
) -> StyleDescriptor:
    """Loads a CSD checkpoint (safetensors, published keys) in float32. ``config`` defaults to the
    published ViT-L.

    Raises:
        WeightsMissing: the file is absent.
        WeightsInvalid: it is damaged or a pickle (as the official release is), or a key is missing,
            unknown or of another shape.
    """
    config = config or CSDConfig()
    if config.width % config.heads:
        raise InvalidSpec(f"A width of {config.width} cannot be split over {config.heads} heads.")
    # checkpoints saved from a parallel training run carry a prefix
    tensors = read_tensors(
        path,
        config.published_shapes(),
        rename=lambda key: key.removeprefix("module."),
        device=device,
        dtype=torch.float32,
    )
    content_ED = tensors.pop("last_layer_content").T.contiguous()
    with torch.device("meta"):
        model = CLIPVisionModelWithProjection(differentiable(config.clip(), device))
    model.load_state_dict(_clip_state(tensors), assign=True)
    # position ids are not stored, so they are built outside the meta device
    embeddings: Any = model.vision_model.embeddings
    embeddings.position_ids = torch.arange(embeddings.num_positions, device=device)[None]
    return StyleDescriptor(model, content_ED, config.image_size)


def _clip_state(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a published CSD checkpoint under transformers' names."""
    state = {"visual_projection.weight": tensors["last_layer_style"].T.contiguous()}
    for key, value in tensors.items():
        if key == "last_layer_style":
            continue
        for theirs, ours in (
            ("backbone.", "vision_model."),
            ("class_embedding", "embeddings.class_embedding"),
            ("positional_embedding", "embeddings.position_embedding.weight"),
            ("conv1", "embeddings.patch_embedding"),
            ("ln_pre", "pre_layrnorm"),  # sic
            ("ln_post", "post_layernorm"),
            ("transformer.resblocks", "encoder.layers"),
            ("attn.", "self_attn."),
            ("ln_1", "layer_norm1"),
            ("ln_2", "layer_norm2"),
            ("mlp.c_fc", "mlp.fc1"),
            ("mlp.c_proj", "mlp.fc2"),
        ):
            key = key.replace(theirs, ours)
        if "in_proj_" in key:
            parts = zip(("q_proj.", "k_proj.", "v_proj."), value.chunk(3), strict=True)
            state |= {key.replace("in_proj_", name): part for name, part in parts}
        else:
            state[key] = value
    return state
