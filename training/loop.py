"""The training loop shared by all stages: time budget, EMA, resumable checkpoints, curves.

The budget is given in minutes, not steps. The learning rate follows a cosine over the elapsed share
of the budget, so that it reaches its minimum on machines of any speed. A resumed run continues
where it stopped.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

LossFn = Callable[[float], tuple[Tensor, dict[str, float]]]
"""Maps the elapsed share of the budget in [0, 1] to (loss, values to log)."""


def device_and_threads(threads: int | None) -> torch.device:
    """Returns ``cuda`` if available, else ``cpu``, and sets the CPU thread count.

    Args:
        threads: CPU threads; None: all cores available to this process.
    """
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = True
        return torch.device("cuda")
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    return torch.device("cpu")


def train(
    model: nn.Module,
    loss_fn: LossFn,
    optimizers: Iterable[torch.optim.Optimizer],
    out: Path,
    minutes: float,
    validate: Callable[[nn.Module], dict[str, float]],
    *,
    warmup: float = 0.01,
    ema_decay: float = 0.999,
    validate_every_minutes: float = 3.0,
    clip: float = 1.0,
) -> nn.Module:
    """Trains ``model`` in place for ``minutes`` of computation and returns its averaged (EMA) copy.

    Resumes from ``out/state.pt`` if it exists. Appends JSON objects to ``out/log.jsonl`` and
    redraws ``out/curves.png`` at every validation.
    """
    out.mkdir(parents=True, exist_ok=True)
    optimizers = list(optimizers)
    peak = [[g["lr"] for g in opt.param_groups] for opt in optimizers]
    ema = AveragedModel(model)
    step, spent = 0, 0.0
    state_file = out / "state.pt"
    if state_file.exists():
        state = torch.load(state_file, weights_only=True, map_location="cpu")
        model.load_state_dict(state["model"])
        ema.load_state_dict(state["ema"])
        for opt, saved in zip(optimizers, state["optimizers"], strict=True):
            opt.load_state_dict(saved)
        step, spent = state["step"], state["spent"]

    def save() -> None:
        torch.save(
            {
                "model": model.state_dict(),
                "ema": ema.state_dict(),
                "optimizers": [opt.state_dict() for opt in optimizers],
                "step": step,
                "spent": spent,
            },
            state_file.with_suffix(".tmp"),
        )
        state_file.with_suffix(".tmp").replace(state_file)

    def log(values: dict[str, float]) -> None:
        with (out / "log.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "minutes": round(spent, 2), **values}) + "\n")

    next_validation = spent + validate_every_minutes
    bar = tqdm(
        total=minutes,
        initial=round(spent, 2),
        unit="min",
        bar_format="{l_bar}{bar}| {n:.1f}/{total:.0f} min {postfix}",
    )
    while spent < minutes:
        started = time.monotonic()
        share = spent / minutes
        scale = min(1.0, share / warmup) * (0.5 + 0.5 * math.cos(math.pi * share)) + 1e-3
        for opt, rates in zip(optimizers, peak, strict=True):
            for group, rate in zip(opt.param_groups, rates, strict=True):
                group["lr"] = rate * scale
        model.train()
        loss, values = loss_fn(share)
        for opt in optimizers:
            opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        for opt in optimizers:
            opt.step()
        step += 1
        # start with a small decay so that the average soon forgets the random initialisation
        ema.multi_avg_fn = get_ema_multi_avg_fn(min(ema_decay, step / (step + 10)))
        ema.update_parameters(model)
        spent += (time.monotonic() - started) / 60
        bar.update((time.monotonic() - started) / 60)
        if step % 50 == 0:
            bar.set_postfix_str(" ".join(f"{k} {v:.4g}" for k, v in values.items()))
            log(values)
        if spent >= next_validation or spent >= minutes:
            ema.module.eval()
            scores = validate(ema.module)
            log(scores)
            bar.write(
                f"step {step} {spent:.1f} min "
                + " ".join(f"{k} {v:.4g}" for k, v in scores.items())
            )
            save()
            plot(out)
            next_validation = spent + validate_every_minutes
    bar.close()
    ema.module.eval()
    return ema.module


def plot(out: Path) -> None:
    """Plots all logged values over minutes to ``out/curves.png``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    names = sorted({k for row in rows for k in row} - {"step", "minutes"})
    columns = min(4, max(1, len(names)))
    figure, axes = pyplot.subplots(
        -(-len(names) // columns),
        columns,
        figsize=(4 * columns, 3 * -(-len(names) // columns)),
        squeeze=False,
    )
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names, strict=False):
        points = [(row["minutes"], row[name]) for row in rows if name in row]
        axis.plot(*zip(*points, strict=True))
        axis.set_title(name)
        axis.set_xlabel("minutes")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(out / "curves.png", dpi=70)
    pyplot.close(figure)
