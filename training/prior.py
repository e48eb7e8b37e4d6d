"""Stage 2: trains the embedded image prior, an MMaDA transformer, on the tokenizer's token grids.

    python -m training.prior --corpus CORPUS --tokenizer runs/tokenizer --out runs/prior \\
        --minutes 45

The loss is masked cross-entropy with MMaDA's mask ratios cos(pi/2 u) on 128-pixel crops, which are
encoded during training. Some batches are captioned; a tenth of their captions is dropped for
classifier-free guidance. The output folder has the layout of a published MMaDA checkpoint.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer as TextTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import LlamaForCausalLM

from aps_core.priors.embedded.image import fast_dtype
from aps_core.priors.llada.network import published_key
from aps_core.priors.mmada.network import Layout, MMaDAConfig, MMaDAPrior
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.types import MASK
from training import corpus
from training.loop import device_and_threads, train
from training.muon import muon_and_adamw
from training.schedule import Cosine

CAPTIONED_SHARE = 0.2
CAPTION_DROPPED = 0.1
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


class PriorLoss:
    """Draws crops, encodes and masks them, and computes the masked cross-entropy loss."""

    def __init__(
        self,
        prior: MMaDAPrior,
        sampler: corpus.CropSampler,
        captioned: corpus.CropSampler,
        batch_size: int,
        device: torch.device,
    ) -> None:
        self.prior = prior
        self.sampler = sampler
        self.captioned = captioned
        self.batch_size = batch_size
        self.device = device
        self.random = sampler.random

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        captioned = self.random.random() < CAPTIONED_SHARE
        crops = [
            (self.captioned if captioned else self.sampler).crop() for _ in range(self.batch_size)
        ]
        captions = [
            (c or "") if captioned and self.random.random() > CAPTION_DROPPED else ""
            for _, c in crops
        ]
        tokenizer = self.prior.tokenizer
        codes_BL = tokenizer.encode(torch.stack([x for x, _ in crops]).to(self.device))
        fraction_B1 = torch.cos(torch.rand(len(codes_BL), 1, device=self.device) * math.pi / 2)
        masked_BL = torch.rand(codes_BL.shape, device=self.device) < fraction_B1
        loss, _ = masked_nll(self.prior, codes_BL, masked_BL, captions)
        return loss, {"nll": loss.item()}


def masked_nll(
    prior: MMaDAPrior,
    codes_BL: Tensor,
    masked_BL: Tensor,
    captions: list[str],
    shown_BL: Tensor | None = None,
) -> tuple[Tensor, int]:
    """Mean cross-entropy in nats over the masked tokens, and their number. Elsewhere the network
    sees ``shown_BL``, or the codes themselves if None."""
    layout = prior.layout
    z_BL = torch.where(masked_BL, MASK, codes_BL if shown_BL is None else shown_BL)
    rows = [prior.sequence(z[None], caption)[0] for z, caption in zip(z_BL, captions, strict=True)]
    longest = max(map(len, rows))
    ids_BS = torch.stack([F.pad(row, (longest - len(row), 0), value=layout.eos) for row in rows])
    attention = None
    if any(len(row) < longest for row in rows):
        attention = torch.stack(
            [torch.arange(longest, device=row.device) >= longest - len(row) for row in rows]
        ).long()
    with torch.autocast(ids_BS.device.type, dtype=torch.bfloat16):
        hidden_BSD = prior.model.model(
            input_ids=ids_BS, attention_mask=attention, use_cache=False
        ).last_hidden_state
        image_ND = hidden_BSD[:, -(codes_BL.shape[1] + 1) : -1][masked_BL]
        logits_NK = image_ND @ prior.model.lm_head.weight[layout.image_offset :].T
    return F.cross_entropy(logits_NK.float(), codes_BL[masked_BL]), len(image_ND)


def validate(prior: MMaDAPrior, model: nn.Module, codes_BL: Tensor) -> dict[str, float]:
    """Cross-entropy on withheld photographs with all, 1/2 and 1/4 of the tokens masked."""
    averaged = MMaDAPrior.__new__(MMaDAPrior)
    averaged.__dict__.update(prior.__dict__)
    averaged.model = model
    order = torch.rand(codes_BL.shape, generator=torch.Generator().manual_seed(0)).to(
        codes_BL.device
    )
    scores = {}
    with torch.no_grad():
        for name, share in (("nll_all", 1.0), ("nll_half", 0.5), ("nll_quarter", 0.25)):
            parts = [
                masked_nll(averaged, c, o < share, [""] * len(c))
                for c, o in zip(codes_BL.split(8), order.split(8), strict=True)
            ]
            scores[name] = sum(float(loss) * n for loss, n in parts) / sum(n for _, n in parts)
    return scores


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
        "--tokenizer", type=Path, required=True, help="run folder of training.tokenizer"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="run folder; a previous run in it is resumed"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=45,
        help="compute budget (8 on a data-centre GPU, 45 on two CPU cores)",
    )
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8, help="token grids per step (128 on a GPU)")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = device_and_threads(args.threads)
    torch.manual_seed(args.seed)
    training, validation = corpus.load(args.corpus)
    tokenizer = load_magvit(args.tokenizer, device, fast_dtype(device))
    text = text_tokenizer(sorted({p.caption for p in training if p.caption}))
    config = config_for(
        text.get_vocab_size(), tokenizer.codebook_KD.shape[1], args.width, args.layers
    )
    prior = build(config, tokenizer, text, device)
    held_out = torch.cat(
        [tokenizer.encode(corpus.square(p, 128)[None].to(device)) for p in validation]
    )

    plain = corpus.CropSampler(
        [p for p in training if p.group != "icon"], 128, args.seed, min_scale=0.75
    )
    captioned = corpus.CropSampler(
        [p for p in training if p.caption], 128, args.seed + 1, min_scale=0.75
    )
    loss = PriorLoss(prior, plain, captioned, args.batch, device)
    hidden = [p for name, p in prior.model.named_parameters() if "_proj" in name]
    optimizers = muon_and_adamw(prior.model, hidden, args.rate, 0.05)
    averaged = train(
        prior.model,
        loss,
        optimizers,
        args.out,
        Cosine(args.minutes),
        lambda m: validate(prior, m, held_out),
    )
    assert isinstance(averaged, LlamaForCausalLM)
    for module in (averaged.model.embed_tokens, averaged.lm_head):
        parametrize.remove_parametrizations(module, "weight")
    save(averaged, config, text, args.out)


if __name__ == "__main__":
    main()
