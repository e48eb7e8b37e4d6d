"""The embedded image prior's network in training, its start from a trained one, and its export."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer as TextTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import LlamaForCausalLM

from aps_core.priors.llada.network import published_key
from aps_core.priors.mmada.network import Layout, MMaDAConfig, MMaDAPrior
from aps_core.tokenizers.magvit2 import MagvitTokenizer

TEXT_VOCABULARY = 1024
GROUP_BITS = 4


def text_tokenizer(captions: list[str]) -> TextTokenizer:
    """Trains a byte-pair vocabulary on the captions."""
    tokenizer = TextTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        captions,
        trainers.BpeTrainer(
            vocab_size=TEXT_VOCABULARY, initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def config_for(text_vocabulary: int, bits: int, width: int, layers: int) -> MMaDAConfig:
    """Network configuration; the ids are text tokens, then special tokens, then image codes."""
    special = {
        name: text_vocabulary + i
        for i, name in enumerate(("t2i", "bos", "eos", "soi", "eoi", "mask"))
    }
    layout = Layout(
        image_offset=text_vocabulary + len(special) + 1,
        codebook_size=2**bits,
        max_text_len=32,
        native_grid=(32, 32),
        **special,
    )
    return MMaDAConfig(
        d_model=width,
        n_heads=width // 32,
        n_kv_heads=width // 32,
        n_layers=layers,
        mlp_hidden_size=width * 8 // 3,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        embedding_size=layout.image_offset + layout.codebook_size,
        max_sequence_length=2048,
        layout=layout,
    )


class SharedBits(nn.Module):
    """Embedding table with shared parameters, used during training only.

    Codes that share a group of bits share a learned vector, so that rare codes also learn from
    similar frequent ones. After training, it is folded into a plain table.
    """

    def __init__(self, bits: int, width: int, offset: int) -> None:
        super().__init__()
        codes = torch.arange(2**bits)
        groups = [(codes >> shift) & (2**GROUP_BITS - 1) for shift in range(0, bits, GROUP_BITS)]
        self.groups: Tensor
        self.register_buffer(
            "groups",
            torch.stack(groups) + 2**GROUP_BITS * torch.arange(len(groups))[:, None],
            persistent=False,
        )
        self.table = nn.Parameter(0.02 * torch.randn(len(groups) * 2**GROUP_BITS, width))
        self.offset = offset

    def forward(self, weight: Tensor) -> Tensor:
        shared = self.table[self.groups].sum(0)
        return torch.cat([weight[: self.offset], weight[self.offset :] + shared])


def save(model: LlamaForCausalLM, config: MMaDAConfig, text: TextTokenizer, out: Path) -> None:
    """Writes a checkpoint folder under the published key names."""
    tensors = {published_key(k): v.half().contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, out / "model.safetensors")
    (out / "config.json").write_text(config.model_dump_json(indent=1) + "\n")
    text.save(str(out / "tokenizer.json"))


def build(
    config: MMaDAConfig, tokenizer: MagvitTokenizer, text: TextTokenizer, device: torch.device
) -> MMaDAPrior:
    """Creates an untrained network with :class:`SharedBits` tables."""
    model = LlamaForCausalLM(config.llama())
    nn.Module.to(model, device)
    bits = tokenizer.codebook_KD.shape[1]
    for module in (model.model.embed_tokens, model.lm_head):
        parametrize.register_parametrization(
            module,
            "weight",
            SharedBits(bits, config.d_model, config.layout.image_offset).to(device),
        )
    prior = MMaDAPrior(
        model, model.lm_head.weight[config.layout.image_offset :], config, tokenizer, text
    )
    model.requires_grad_(True)
    return prior


def export(model: LlamaForCausalLM, prior: MMaDAPrior, config: MMaDAConfig, out: Path) -> None:
    """Writes the checkpoint folder with plain tables; ``model`` keeps its shared ones."""
    plain = LlamaForCausalLM(config.llama())
    plain.load_state_dict(_folded(model))
    save(plain, config, prior.text_tokenizer, out)


def _folded(model: LlamaForCausalLM) -> dict[str, Tensor]:
    """The state dict without parametrizations."""
    tables = {
        name: module
        for name, module in model.named_modules()
        if parametrize.is_parametrized(module)
    }
    state = {k: v for k, v in model.state_dict().items() if ".parametrizations." not in k}
    for name, module in tables.items():
        assert isinstance(module.weight, Tensor)
        state[f"{name}.weight"] = module.weight.detach()
    return state


def take_layers(model: LlamaForCausalLM, other: LlamaForCausalLM) -> None:
    """Copies the layers of a trained prior of the same shape, not its token tables: the codes of
    another tokenizer mean other things, but attention to near tokens carries over.
    """
    model.model.layers.load_state_dict(other.model.layers.state_dict())
    model.model.norm.load_state_dict(other.model.norm.state_dict())


@torch.no_grad()
def take_tables(model: LlamaForCausalLM, other: LlamaForCausalLM) -> None:
    """Copies the token tables, too, where the tokenizer began as the other prior's."""
    for mine, theirs in (
        (model.model.embed_tokens, other.model.embed_tokens),
        (model.lm_head, other.lm_head),
    ):
        parts = mine.parametrizations.weight
        parts[0].table.zero_()
        rows = theirs.weight  # a head may be loaded without its rows of text
        parts.original[-len(rows) :].copy_(rows)
