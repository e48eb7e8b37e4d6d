"""VQ-Diffusion (Gu et al. 2022) as a prior: transformer, noise schedule, text conditioning.

Networks and schedule come from diffusers and transformers; the checkpoint has diffusers' folder
layout.

VQ-Diffusion's forward process combines masking and uniform replacement, and its network takes the
time step as input. In the published schedule, the uniform share never exceeds 1e-6, so a token is
either clean or masked. A state of anchored sampling (decided codes and masks) is therefore a valid
state of VQ-Diffusion, at the time step with the same masked share ``gamma_bar``.

Shapes: B samples, L image tokens, K codes, S text tokens, E text width.
"""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import Transformer2DModel, VQDiffusionScheduler
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from aps_core.checkpoints.diffusers_parts import load_part
from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.metadata import read_json
from aps_core.errors import WeightsInvalid, WeightsMissing
from aps_core.sampling.windows import windowed_logits
from aps_core.tokenizers.vq_diffusion import load_vq_tokenizer
from aps_core.types import MASK, Grid, Tokenizer

FLOOR = -70.0
"""Lower bound of log-probabilities, as in the release."""
PAD = 0
"""Padding token of texts: 0 ("!"), as in training. CLIP itself pads with its end token."""


class TextConditioner:
    """Encodes prompts to text embeddings (S, E): CLIP's last hidden state with unit-length
    vectors.
    """

    def __init__(self, tokenizer: CLIPTokenizer, encoder: CLIPTextModel) -> None:
        self.tokenizer = tokenizer
        self.encoder = encoder.eval().requires_grad_(False)
        self.length = int(encoder.config.max_position_embeddings)

    @torch.no_grad()
    def __call__(self, prompt: str) -> Tensor:
        """Longer prompts are truncated without an end token, as in the release."""
        ids = self.tokenizer(prompt).input_ids[: self.length]
        ids += [PAD] * (self.length - len(ids))
        hidden_SE: Tensor = self.encoder(
            torch.tensor([ids], device=self.encoder.device)
        ).last_hidden_state[0]
        vectors_SE: Tensor = hidden_SE / hidden_SE.norm(dim=-1, keepdim=True)
        return vectors_SE


class VQDiffusionPrior:
    """Implements :class:`aps_core.types.Prior` with VQ-Diffusion."""

    def __init__(
        self,
        transformer: Transformer2DModel,
        scheduler: VQDiffusionScheduler,
        text: TextConditioner,
        unconditional_SE: Tensor,
        tokenizer: Tokenizer,
    ) -> None:
        self.transformer = transformer
        self.scheduler = scheduler
        self.text = text
        self.unconditional_SE = unconditional_SE
        self.tokenizer = tokenizer
        self.mask_class = int(transformer.config.num_vector_embeds) - 1
        self.native_grid: Grid = (transformer.height, transformer.width)
        self.gamma_bar_T = scheduler.log_cumprod_ct[
            :-1
        ].exp()  # the last entry is the state before the first step
        self._prompt: tuple[str, Tensor] | None = None

    def timestep(self, mask_fraction: float) -> int:
        """The time step whose masked share is closest to ``mask_fraction``."""
        return int((self.gamma_bar_T - mask_fraction).abs().argmin())

    @torch.no_grad()
    def logits(
        self,
        z_BL: Tensor,
        *,
        grid: Grid,
        mask_fraction: float,
        condition: str,
        guidance_scale: float,
    ) -> Tensor:
        """Guided log-probabilities (B, L, K), float32. Grids other than the native one use
        overlapping windows.
        """
        step = self.timestep(mask_fraction)
        return windowed_logits(
            z_BL,
            grid,
            self.native_grid,
            self.mask_class,
            lambda z: self._guided(z, step, condition, guidance_scale),
        )

    def _guided(self, z_BL: Tensor, step: int, condition: str, guidance_scale: float) -> Tensor:
        """``uncond + s (text - uncond)``, normalised; equals our ``(1 + g) text - g uncond`` for
        ``s = 1 + g``.
        """
        if not condition:
            return self._log_p(z_BL, step, self.unconditional_SE).clamp(FLOOR)
        text = self._log_p(z_BL, step, self._encoded(condition))
        if guidance_scale == 0:
            return text.clamp(FLOOR)
        unconditional = self._log_p(z_BL, step, self.unconditional_SE)
        return (
            (unconditional + (1 + guidance_scale) * (text - unconditional))
            .log_softmax(-1)
            .clamp(FLOOR)
        )

    def _log_p(self, z_BL: Tensor, step: int, text_SE: Tensor) -> Tensor:
        classes_BL = torch.where(z_BL == MASK, self.mask_class, z_BL)
        hidden_BSE = text_SE.to(self.transformer.dtype).expand(len(z_BL), -1, -1)
        timestep = torch.tensor(step, device=z_BL.device)
        log_p_BKL: Tensor = self.transformer(
            classes_BL, encoder_hidden_states=hidden_BSE, timestep=timestep, return_dict=False
        )[0]
        return log_p_BKL.transpose(1, 2)

    def _encoded(self, condition: str) -> Tensor:
        """Caches the last prompt, because a job uses the same prompt in every step."""
        if self._prompt is None or self._prompt[0] != condition:
            self._prompt = condition, self.text(condition)
        return self._prompt[1]


def load_vq_diffusion(folder: Path, device: torch.device, dtype: torch.dtype) -> VQDiffusionPrior:
    """Loads a VQ-Diffusion checkpoint in diffusers' layout.

    Raises:
        WeightsMissing: a file is absent.
        WeightsInvalid: a key is missing, unknown or of another shape, or the parts do not belong
            together.
    """
    # the release's configuration predates the field; its network uses ada_norm
    transformer = load_part(
        Transformer2DModel, folder / "transformer", device, dtype, norm_type="ada_norm"
    )
    tokenizer = load_vq_tokenizer(folder / "vqvae", device, dtype)
    codes, classes = len(tokenizer.codebook_KD), int(transformer.config.num_vector_embeds)
    if classes != codes + 1:
        raise WeightsInvalid(
            f"{folder}: the transformer has {classes} classes, but the codebook {codes} codes and a"
            f" mask make {codes + 1}."
        )
    encoder = load_text_encoder(folder / "text_encoder", device)
    width = int(transformer.config.cross_attention_dim)
    if encoder.config.hidden_size != width:
        raise WeightsInvalid(
            f"{folder}: the transformer reads text of width {width}, but the text encoder's is"
            f" {encoder.config.hidden_size}."
        )
    text = TextConditioner(load_text_tokenizer(folder / "tokenizer"), encoder)
    steps = int(transformer.config.num_embeds_ada_norm)
    scheduler = VQDiffusionScheduler(num_vec_classes=classes, num_train_timesteps=steps)
    return VQDiffusionPrior(
        transformer, scheduler, text, load_unconditional(folder, text, width, device), tokenizer
    )


def load_text_tokenizer(folder: Path) -> CLIPTokenizer:
    """CLIP's byte-pair tokenizer: ``vocab.json`` and ``merges.txt``.

    Raises:
        WeightsMissing: a file is absent.
    """
    for name in ("vocab.json", "merges.txt"):
        if not (folder / name).is_file():
            raise WeightsMissing(f"{folder / name} does not exist.")
    tokenizer: CLIPTokenizer = CLIPTokenizer.from_pretrained(folder, local_files_only=True)
    return tokenizer


def load_text_encoder(folder: Path, device: torch.device) -> CLIPTextModel:
    """CLIP's text encoder in float32 from ``config.json`` and ``model.safetensors``, with or
    without the key prefix ``text_model.``.

    Raises:
        WeightsMissing, WeightsInvalid: a file is absent, or a key is missing, unknown or of another
            shape.
    """
    encoder = CLIPTextModel(CLIPTextConfig.from_dict(read_json(folder / "config.json")))
    prefix = "text_model."  # key names in transformers depend on its version
    names = {key.removeprefix(prefix): key for key in encoder.state_dict()}
    shapes = {name: encoder.state_dict()[key].shape for name, key in names.items()}
    stored = read_tensors(
        folder / "model.safetensors",
        shapes,
        ignore=(f"{prefix}embeddings.position_ids",),
        rename=lambda key: key.removeprefix(prefix),
    )
    encoder.load_state_dict({names[name]: value for name, value in stored.items()})
    encoder.to(device)  # type: ignore[arg-type]  # transformers' wrapper loses the signature
    return encoder


def load_unconditional(
    folder: Path, text: TextConditioner, width: int, device: torch.device
) -> Tensor:
    """Embedding (S, E) of an unconditional sample: learned in the published checkpoint, else that
    of the empty prompt.
    """
    part = folder / "learned_classifier_free_sampling_embeddings"
    if not read_json(part / "config.json").get("learnable"):
        return text("")
    shapes = {"embeddings": (text.length, width)}
    return read_tensors(part / "diffusion_pytorch_model.safetensors", shapes)["embeddings"].to(
        device
    )
