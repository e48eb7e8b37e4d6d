"""Manifest of all supported checkpoints: content, source and the features that need them. Needs no
torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aps_core.errors import InvalidSpec

SAFE = ("*.safetensors", "*.json", "*.txt", "*.jinja")
"""Files that are downloaded: tensors, configuration, vocabularies, chat templates. Never pickles or
code.
"""


@dataclass(frozen=True)
class Checkpoint:
    """One published checkpoint."""

    name: str
    what: str
    repo: str | None
    """Repository on the Hugging Face hub; None if the weights are published elsewhere."""
    bytes: int
    bytes_known: bool
    """Whether ``bytes`` is a published size; otherwise it is computed from the number of
    parameters.
    """
    licence: str
    needed_by: tuple[str, ...]
    revision: str = "main"
    """A commit known to contain these files, else a branch, which may change."""
    requires: tuple[str, ...] = ("config.json",)
    """Required files besides the tensors."""
    parts: tuple[str, ...] = (".",)
    """Sub-folders that each contain a checkpoint in safetensors."""
    sha256: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 by file, where published."""
    pickles: Mapping[str, str] = field(default_factory=dict)
    """Maps a part to its file, if only PyTorch pickles are published."""
    source: str = ""
    """Where the pickles are published, if not in ``repo``."""

    @property
    def convert(self) -> str:
        """Commands, one per line, that create the safetensors; empty if safetensors are
        published.
        """
        if not self.pickles:
            return ""
        files = " ".join(self.pickles.values())
        download = (
            f"hf download {self.repo} {files} --revision {self.revision} --local-dir pickles"
            if self.repo
            else f"# download {self.source} into the folder pickles"
        )
        commands = [
            f"aps weights convert {self.name} pickles/{file}"
            + ("" if part == "." else f" --part {part}")
            for part, file in self.pickles.items()
        ]
        return "\n".join([download, *commands])


TEXT = ("config.json", "tokenizer.json")


def _skywork(size: str, bytes: int, needed_by: tuple[str, ...]) -> Checkpoint:
    """One size of a family of published reward models."""
    return Checkpoint(
        name=f"skywork-reward-v2-qwen3-{size.lower()}",
        what=f"Skywork-Reward-V2 on Qwen3-{size}: reward model, a sequence classifier",
        repo=f"Skywork/Skywork-Reward-V2-Qwen3-{size}",
        bytes=bytes,
        bytes_known=False,
        licence="Apache-2.0",
        needed_by=needed_by,
        requires=(*TEXT, "tokenizer_config.json"),
    )


CHECKPOINTS: dict[str, Checkpoint] = {
    entry.name: entry
    for entry in (
        Checkpoint(
            name="mmada-8b-base",
            what="MMaDA-8B: text and image diffusion transformer (8.1 billion parameters)",
            repo="Gen-Verse/MMaDA-8B-Base",
            bytes=16_165_380_096,
            bytes_known=False,
            licence="MIT",
            needed_by=("prior mmada_8b",),
            requires=TEXT,
        ),
        Checkpoint(
            name="mmada-8b-mixcot",
            what="MMaDA-8B after mixed chain-of-thought tuning",
            repo="Gen-Verse/MMaDA-8B-MixCoT",
            bytes=16_165_380_096,
            bytes_known=False,
            licence="MIT",
            needed_by=("prior mmada_8b_mixcot",),
            requires=TEXT,
        ),
        Checkpoint(
            name="magvitv2",
            what="MAGVIT-v2 image tokenizer, 13 bits, stride 16 (95 million parameters)",
            repo="showlab/magvitv2",
            bytes=382_000_000,
            bytes_known=True,
            licence="MIT",
            needed_by=("prior mmada_8b", "prior mmada_8b_mixcot"),
        ),
        Checkpoint(
            name="dream-7b-instruct",
            what="Dream-7B: masked diffusion language model",
            repo="Dream-org/Dream-v0-Instruct-7B",
            bytes=15_231_233_024,
            bytes_known=False,
            licence="Apache-2.0",
            needed_by=("prior dream_7b",),
            requires=("config.json", "vocab.json", "merges.txt", "added_tokens.json"),
        ),
        Checkpoint(
            name="llada-8b-instruct",
            what="LLaDA-8B: masked diffusion language model, MMaDA's backbone",
            repo="GSAI-ML/LLaDA-8B-Instruct",
            bytes=16_031_162_368,
            bytes_known=True,
            licence="MIT",
            needed_by=("prior llada_8b",),
            requires=TEXT,
        ),
        Checkpoint(
            name="vq-diffusion-ithq",
            what=(
                "VQ-Diffusion trained on ITHQ, the prior of G2D2 (1.4 billion parameters), with its"
                " CLIP text encoder"
            ),
            repo="microsoft/vq-diffusion-ithq",
            revision="592fb834c52ac855cba5f9ca31253438f8c86bb4",
            bytes=5_950_000_000,
            bytes_known=False,
            licence="MIT",
            needed_by=("prior vq_diffusion",),
            requires=(
                "tokenizer/vocab.json",
                "tokenizer/merges.txt",
                "learned_classifier_free_sampling_embeddings/config.json",
            ),
            parts=(
                "transformer",
                "vqvae",
                "text_encoder",
                "learned_classifier_free_sampling_embeddings",
            ),
            pickles={
                "transformer": "transformer/diffusion_pytorch_model.bin",
                "vqvae": "vqvae/diffusion_pytorch_model.bin",
                "text_encoder": "text_encoder/pytorch_model.bin",
                "learned_classifier_free_sampling_embeddings": (
                    "learned_classifier_free_sampling_embeddings/diffusion_pytorch_model.bin"
                ),
            },
        ),
        Checkpoint(
            name="csd-vit-l",
            what=(
                "CSD: contrastive style descriptor (ViT-L), in the community's safetensors copy;"
                " the official release (CC-BY-4.0) is a pickle"
            ),
            repo="yuxi-liu-wired/CSD",
            revision="cd2dac3ad9398e42906127bc44988a6de47abe68",
            bytes=1_220_000_000,
            bytes_known=False,
            licence="MIT (copy), CC-BY-4.0 (official release)",
            needed_by=("style objective",),
            requires=(),
        ),
        _skywork("0.6B", 1_192_101_888, ("prior dream_7b", "prior llada_8b")),
        _skywork("1.7B", 3_441_154_048, ("reward.model of text guidance",)),
        _skywork("4B", 8_044_941_312, ("reward.model of text guidance",)),
        Checkpoint(
            name="qwen3-0.6b",
            what="Qwen3-0.6B: language model for the rewards yes_no and log_likelihood",
            repo="Qwen/Qwen3-0.6B",
            revision="c1899de289a04d12100db370d81485cdf75e47ca",
            bytes=1_503_300_328,
            bytes_known=True,
            licence="Apache-2.0",
            needed_by=("reward yes_no", "reward log_likelihood"),
            requires=TEXT,
            sha256={
                "model.safetensors": (
                    "f47f71177f32bcd101b7573ec9171e6a57f4f4d31148d38e382306f42996874b"
                ),
                "tokenizer.json": (
                    "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"
                ),
            },
        ),
        Checkpoint(
            name="qwen3-8b",
            what="Qwen3-8B: judge of generated text, never used in guidance",
            repo="Qwen/Qwen3-8B",
            bytes=16_381_470_720,
            bytes_known=False,
            licence="Apache-2.0",
            needed_by=("text evaluation",),
            requires=TEXT,
        ),
        Checkpoint(
            name="vgg16",
            what="VGG16 trained on ImageNet (torchvision's weights): perceptual features",
            repo="timm/vgg16.tv_in1k",
            revision="3394518cba29aee1ea82a49d971be90d2dd1dab7",
            bytes=553_430_176,
            bytes_known=False,
            licence="BSD-3-Clause",
            needed_by=("sampler setting perceptual='vgg16'", "metric LPIPS"),
            requires=(),
        ),
        Checkpoint(
            name="lpips-vgg",
            what="LPIPS 0.1 channel weights on VGG16",
            repo=None,
            bytes=7_000,
            bytes_known=False,
            licence="BSD-2-Clause",
            needed_by=("metric LPIPS",),
            requires=(),
            pickles={".": "vgg.pth"},
            source=(
                "lpips/weights/v0.1/vgg.pth of the GitHub repository"
                " richzhang/PerceptualSimilarity, SHA-256"
                " a78928a0af1e5f0fcb1f3b9e8f8c3a2a5a3de244d830ad5c1feddc79b8432868"
            ),
        ),
        Checkpoint(
            name="kernelwizard",
            what="KernelWizard: network that applies an encoded camera blur",
            repo=None,
            bytes=95_000_000,
            bytes_known=False,
            licence="code BSD-3-Clause, weights unstated",
            needed_by=("operator nonlinear_blur",),
            requires=(),
            pickles={".": "GOPRO_wVAE.pth"},
            source=(
                "GOPRO_wVAE.pth, linked from the GitHub repository"
                " VinAIResearch/blur-kernel-space-exploring"
            ),
        ),
    )
}


def named(name: str) -> Checkpoint:
    """Returns the checkpoint called ``name``.

    Raises:
        InvalidSpec: no checkpoint has that name.
    """
    if name not in CHECKPOINTS:
        raise InvalidSpec(f"There is no checkpoint '{name}'; known: {', '.join(CHECKPOINTS)}.")
    return CHECKPOINTS[name]
