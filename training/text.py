"""Trains the embedded text models: masked prior, reward model and independent judge.

    python -m training.text --corpus CORPUS/text.tar.xz --out runs/text --minutes 38 8 8

The prior uses Dream's network class and loss (``masked_text.py``), the reward model and the judge
Qwen3's with two heads (``reward.py``). All share a byte-pair vocabulary. The judge is trained on
other sentences and other generated texts than the prior and the reward model. Every stage resumes
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
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from training import masked_text, reward, text_pairs
from training.loop import LossFn, device_and_threads, steps_done, train
from training.muon import muon_and_adamw
from training.schedule import Cosine
from training.text_pairs import PairSampler, special

LENGTH = 80
"""Tokens of prompt and answer together."""
HEAD = 32
STAGES = {"prior": (256, 4), "reward": (160, 3), "judge": (192, 4)}
"""Width and layers."""
JUDGE_SEED = 1_000_000

Validate = Callable[[nn.Module], dict[str, float]]


def shape(stage: str) -> dict[str, Any]:
    """Configuration fields that both network classes share."""
    width, layers = STAGES[stage]
    return {
        "vocab_size": text_pairs.VOCABULARY,
        "hidden_size": width,
        "intermediate_size": width * 8 // 3 // 16 * 16,
        "num_hidden_layers": layers,
        "num_attention_heads": width // HEAD,
        "num_key_value_heads": width // HEAD,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    }


def prior_stage(
    sampler: PairSampler, withheld: PairSampler, args: argparse.Namespace, device: torch.device
) -> tuple[nn.Module, LossFn, Validate, str]:
    """Network, loss, validation and ``config.json`` of the prior."""
    config = masked_text.dream_config(sampler.tokenizer, shape("prior"))
    model = Qwen2ForCausalLM(config.qwen2())
    nn.Module.to(model, device)
    # on a CPU, the backward pass of fused attention takes half of the step
    model.set_attn_implementation("eager")
    rows = withheld.draw(256)
    step = masked_text.MaskedLoss(model, sampler, LENGTH, args.batch, args.seed)
    mask = special(sampler.tokenizer, text_pairs.MASK)
    validate = partial(masked_text.validate, rows=rows, mask=mask, eos=sampler.eos)
    return model, step, validate, config.model_dump_json(indent=1)


def reward_stage(
    stage: str,
    sampler: PairSampler,
    withheld: PairSampler,
    args: argparse.Namespace,
    device: torch.device,
) -> tuple[nn.Module, LossFn, Validate, str]:
    """Network, loss, validation and ``config.json`` of the reward model or the judge."""
    config = reward.config(sampler.tokenizer, shape(stage), HEAD)
    model = reward.ScoredLM(config).to(device)
    step = reward.PreferenceLoss(model, sampler, args.batch // 2, args.seed)

    def validate(averaged: nn.Module) -> dict[str, float]:
        assert isinstance(averaged, reward.ScoredLM)
        return reward.validate(averaged, withheld, each=64)

    return model, step, validate, json.dumps(config.to_diff_dict(), indent=1)


def run_stage(
    stage: str, args: argparse.Namespace, minutes: float, tokenizer: Tokenizer, device: torch.device
) -> None:
    """Trains one model and writes its checkpoint folder."""
    out = args.out / stage
    torch.manual_seed(args.seed)
    judge = stage == "judge"
    # a resumed run does not repeat the pairs it began with
    seed = args.seed + steps_done(out) + (JUDGE_SEED if judge else 0)
    sentences = text_pairs.read(args.corpus, "judge" if judge else "guide")
    sampler = PairSampler(sentences, tokenizer, LENGTH, seed)
    withheld = PairSampler(text_pairs.read(args.corpus, "eval"), tokenizer, LENGTH, -1)
    model, step, validate, config = (
        prior_stage(sampler, withheld, args, device)
        if stage == "prior"
        else reward_stage(stage, sampler, withheld, args, device)
    )
    hidden = [p for name, p in model.named_parameters() if "_proj" in name and p.ndim == 2]
    averaged = train(
        model,
        step,
        muon_and_adamw(model, hidden, args.rate, 0.02),
        out,
        Cosine(minutes),
        validate,
        validate_every_minutes=4,
    )
    save_file(stored(averaged), out / "model.safetensors")
    (out / "config.json").write_text(config + "\n")
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    if stage != "prior":
        template = {"chat_template": reward.CHAT_TEMPLATE}
        (out / "tokenizer_config.json").write_text(json.dumps(template, indent=1) + "\n")


def stored(model: nn.Module) -> dict[str, Tensor]:
    """The weights in float16 by their names in a checkpoint, without the output head: it is the
    embedding.
    """
    return {
        name.removeprefix("lm."): weight.half().contiguous()
        for name, weight in model.state_dict().items()
        if not name.endswith("lm_head.weight")
    }


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
        default=(38, 8, 8),
        metavar=("PRIOR", "REWARD", "JUDGE"),
        help="compute budget of each stage",
    )
    parser.add_argument("--only", choices=STAGES, help="train this stage and leave the others")
    parser.add_argument(
        "--batch", type=int, default=64, help="prompt and answer pairs per step (512 on a GPU)"
    )
    parser.add_argument("--rate", type=float, default=2.5e-3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = device_and_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "tokenizer.json"
    if not file.exists():
        text_pairs.train_tokenizer(text_pairs.read(args.corpus, "guide"), args.seed).save(str(file))
    tokenizer = Tokenizer.from_file(str(file))
    for stage, minutes in zip(STAGES, args.minutes, strict=True):
        if args.only in (None, stage):
            run_stage(stage, args, minutes, tokenizer, device)


if __name__ == "__main__":
    main()
