"""Trains the embedded text models: masked prior, causal reward model and independent causal judge.

    python -m training.text --corpus CORPUS/text.tar.xz --out runs/text --minutes 25 8 8

The prior uses Dream's network class and loss: masked cross-entropy on the answer, given the
unmasked prompt. The reward model and the judge use Qwen3's. Prior and reward model share a
byte-pair vocabulary and a part of the corpus; the judge is trained on the rest. Every stage resumes
from its folder; a finished stage is only saved again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from aps_core.priors.dream.network import DreamConfig
from training import turns
from training.loop import device_and_threads, train
from training.muon import muon_and_adamw
from training.schedule import Cosine
from training.turns import Encoded, TurnSampler, special

LENGTH = 128
HEAD = 32
STAGES = {"prior": (256, 4), "reward": (160, 3), "judge": (192, 4)}
"""Width and layers."""
PAD_WEIGHT = 0.1
"""Weight of padding end tokens (all but the first) in the prior's loss, since they are numerous and
easy to predict.
"""

Nll = Callable[[nn.Module, list[Encoded], torch.Generator], tuple[Tensor, int]]
"""Mean cross-entropy in nats over the predicted tokens, and the number of these tokens."""


def shape(stage: str) -> dict[str, Any]:
    """Configuration fields that both network classes share."""
    width, layers = STAGES[stage]
    return {
        "vocab_size": turns.VOCABULARY,
        "hidden_size": width,
        "intermediate_size": width * 8 // 3 // 16 * 16,
        "num_hidden_layers": layers,
        "num_attention_heads": width // HEAD,
        "num_key_value_heads": width // HEAD,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    }


def dream_config(tokenizer: Tokenizer) -> DreamConfig:
    """``config.json`` of the prior."""
    ids = {
        "mask_token_id": special(tokenizer, turns.MASK),
        "eos_token_id": special(tokenizer, turns.EOS),
    }
    return DreamConfig(
        **shape("prior"), **ids, rope_theta=10000.0, prompt_format=turns.PROMPT_FORMAT
    )


def causal_config(stage: str, tokenizer: Tokenizer) -> Qwen3Config:
    """``config.json`` of a causal model."""
    ids: dict[str, Any] = {
        "eos_token_id": special(tokenizer, turns.EOS),
        "bos_token_id": None,
        "pad_token_id": None,
    }
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    more: dict[str, Any] = {
        "head_dim": HEAD,
        "rope_parameters": rope,
        "use_cache": False,
        "architectures": ["Qwen3ForCausalLM"],
    }
    return Qwen3Config(**shape(stage), **ids, **more)


def pad(rows: list[Encoded], width: int, eos: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pads a batch with end tokens.

    Returns:
        Ids (B, width); mask (B, width) of the answer region; mask (B, width) of the answer up to
        and including its first end token.
    """
    ids_BS = torch.tensor(
        [
            [*row.prompt, *row.answer, *[eos] * (width - len(row.prompt) - len(row.answer))]
            for row in rows
        ]
    )
    place_S = torch.arange(width)
    start_B1 = torch.tensor([[len(row.prompt)] for row in rows])
    end_B1 = start_B1 + torch.tensor([[len(row.answer)] for row in rows])
    return ids_BS, place_S >= start_B1, (place_S >= start_B1) & (place_S < end_B1)


def masked_nll(
    model: nn.Module,
    rows: list[Encoded],
    generator: torch.Generator,
    *,
    mask: int,
    eos: int,
    share: float | None = None,
) -> tuple[Tensor, int]:
    """Loss of the prior. As in Dream, each token is predicted at the preceding position.

    ``share`` is the share of answer tokens that are masked; by default it is drawn uniformly.
    """
    assert isinstance(model, Qwen2ForCausalLM)
    longest = max(len(row.prompt) + len(row.answer) for row in rows)
    # half of the batches are wider than necessary, so that the model learns answers that end early
    width = (
        longest
        if share is not None or torch.rand((), generator=generator) < 0.5
        else int(torch.randint(longest, LENGTH + 1, (), generator=generator))
    )
    ids_BS, region_BS, answer_BS = pad(rows, width, eos)
    share_B1 = (
        torch.rand(len(rows), 1, generator=generator)
        if share is None
        else torch.full((len(rows), 1), share)
    )
    masked_BS = region_BS & (torch.rand(ids_BS.shape, generator=generator) < share_B1)
    device = model.device
    with torch.autocast(device.type, dtype=torch.bfloat16):
        seen_BS = ids_BS.masked_fill(masked_BS, mask).to(device)
        hidden_BSD = model.model(input_ids=seen_BS, use_cache=False).last_hidden_state
        logits_NV = model.lm_head(hidden_BSD[:, :-1][masked_BS[:, 1:].to(device)])
    weight_N = torch.where(answer_BS[masked_BS], 1.0, PAD_WEIGHT if share is None else 0.0).to(
        device
    )
    nll_N = F.cross_entropy(logits_NV.float(), ids_BS[masked_BS].to(device), reduction="none")
    return (nll_N * weight_N).sum() / weight_N.sum().clamp(min=1), int(weight_N.sum())


def causal_nll(
    model: nn.Module, rows: list[Encoded], generator: torch.Generator, *, eos: int
) -> tuple[Tensor, int]:
    """Loss of a causal model over prompt and answer up to the end token; in validation, over the
    answer only.
    """
    assert isinstance(model, Qwen3ForCausalLM)
    ids_BS, region_BS, answer_BS = pad(
        rows, max(len(row.prompt) + len(row.answer) for row in rows), eos
    )
    device = model.device
    counted_BS = answer_BS if not model.training else answer_BS | ~region_BS
    with torch.autocast(device.type, dtype=torch.bfloat16):
        hidden_BSD = model.model(input_ids=ids_BS.to(device), use_cache=False).last_hidden_state
        logits_NV = model.lm_head(hidden_BSD[:, :-1][counted_BS[:, 1:].to(device)])
    target_N = ids_BS[:, 1:][counted_BS[:, 1:]].to(device)
    return F.cross_entropy(logits_NV.float(), target_N), len(target_N)


class TurnLoss:
    """Draws a batch of prompt and answer pairs of similar length and computes the training loss."""

    def __init__(
        self, model: nn.Module, sampler: TurnSampler, nll: Nll, batch: int, seed: int
    ) -> None:
        self.model = model
        self.sampler = sampler
        self.nll = nll
        self.batch = batch
        self.generator = torch.Generator().manual_seed(seed)
        self.waiting: list[list[Encoded]] = []

    def __call__(self, share: float) -> tuple[Tensor, dict[str, float]]:
        if not self.waiting:
            pool = sorted(
                self.sampler.draw(8 * self.batch), key=lambda row: len(row.prompt) + len(row.answer)
            )
            self.waiting = [pool[i : i + self.batch] for i in range(0, len(pool), self.batch)]
            self.sampler.random.shuffle(self.waiting)
        loss, _ = self.nll(self.model, self.waiting.pop(), self.generator)
        return loss, {"nll": loss.item()}


def validate(model: nn.Module, rows: list[Encoded], kinds: dict[str, Nll]) -> dict[str, float]:
    """Nats per answer token on withheld lines, for each type of prediction."""
    scores = {}
    ordered = sorted(rows, key=lambda row: len(row.prompt) + len(row.answer))
    with torch.no_grad():
        for name, nll in kinds.items():
            generator = torch.Generator().manual_seed(0)
            parts = [nll(model, ordered[i : i + 32], generator) for i in range(0, len(ordered), 32)]
            scores[name] = sum(float(loss) * n for loss, n in parts) / sum(n for _, n in parts)
    return scores


def run_stage(
    stage: str, args: argparse.Namespace, minutes: float, tokenizer: Tokenizer, device: torch.device
) -> None:
    """Trains one model and writes its checkpoint folder."""
    out = args.out / stage
    torch.manual_seed(args.seed)
    eos, mask = special(tokenizer, turns.EOS), special(tokenizer, turns.MASK)
    model: Qwen2ForCausalLM | Qwen3ForCausalLM
    if stage == "prior":
        config = dream_config(tokenizer)
        model = Qwen2ForCausalLM(config.qwen2())
        text = config.model_dump_json(indent=1)
        loss: Nll = partial(masked_nll, mask=mask, eos=eos)
        shares = (("nll_all", 1.0), ("nll_half", 0.5), ("nll_quarter", 0.25))
        kinds: dict[str, Nll] = {
            name: partial(masked_nll, mask=mask, eos=eos, share=share) for name, share in shares
        }
    else:
        causal = causal_config(stage, tokenizer)
        model = Qwen3ForCausalLM(causal)
        text = json.dumps(causal.to_diff_dict(), indent=1)
        loss = partial(causal_nll, eos=eos)
        kinds = {"nll_answer": loss}
    nn.Module.to(model, device)
    # on a CPU, the backward pass of fused attention takes half of the step
    model.set_attn_implementation("eager")
    lines = turns.read(args.corpus, "judge" if stage == "judge" else "guide")
    sampler = TurnSampler(lines, tokenizer, LENGTH, args.seed)
    held_out = TurnSampler(turns.read(args.corpus, "eval"), tokenizer, LENGTH, 0).draw(512)
    hidden = [p for name, p in model.named_parameters() if "_proj" in name and p.ndim == 2]
    optimizers = muon_and_adamw(model, hidden, args.rate, 0.02)
    step = TurnLoss(model, sampler, loss, args.batch, args.seed)
    averaged = train(
        model,
        step,
        optimizers,
        out,
        Cosine(minutes),
        lambda m: validate(m, held_out, kinds),
        validate_every_minutes=2,
    )
    # the head is the embedding
    tensors = {
        key: value.half().contiguous()
        for key, value in averaged.state_dict().items()
        if key != "lm_head.weight"
    }
    save_file(tensors, out / "model.safetensors")
    (out / "config.json").write_text(text + "\n")
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="text.tar.xz")
    parser.add_argument(
        "--out", type=Path, required=True, help="run folder; a previous run in it is resumed"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        nargs=3,
        default=(25, 8, 8),
        metavar=("PRIOR", "REWARD", "JUDGE"),
        help="compute budget of each stage",
    )
    parser.add_argument(
        "--batch", type=int, default=48, help="prompt and answer pairs per step (512 on a GPU)"
    )
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = device_and_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "tokenizer.json"
    if not file.exists():
        lines = [
            line
            for some in turns.read(args.corpus, "guide").values()
            for line in some[:: max(1, len(some) // 4000)]
        ]
        turns.train_tokenizer(lines).save(str(file))
    tokenizer = Tokenizer.from_file(str(file))
    for stage, minutes in zip(STAGES, args.minutes, strict=True):
        run_stage(stage, args, minutes, tokenizer, device)


if __name__ == "__main__":
    main()
