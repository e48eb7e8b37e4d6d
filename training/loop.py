"""The training loop shared by all stages: time budget, EMA, resumable checkpoints, curves.

The budget is given in minutes, not steps. The learning rate depends on the minutes of computation
spent, so that it is fully annealed at the end on machines of any speed. A resumed run continues
where it stopped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from aps_core.runtime.precision import fast_dtype
from training.schedule import Schedule
from training.stopping import stoppable

Values = Mapping[str, float | Tensor]
"""To log. Tensors are of one number, and read when they are logged: otherwise the host would wait
for a GPU in every step.
"""
LossFn = Callable[[float], tuple[Tensor, Values]]
"""Maps the elapsed share of the budget in [0, 1] to (loss, values to log)."""

FIRST_SNAPSHOT = 64
"""Step, a power of two."""


def device_and_threads(threads: int | None) -> torch.device:
    """Returns ``cuda`` if available, else ``cpu``, and then sets the thread count (default: all
    usable cores).
    """
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = True
        return torch.device("cuda")
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    return torch.device("cpu")


def mixed_precision(device: torch.device) -> torch.autocast:
    """Products in bfloat16, where the hardware has them."""
    dtype = fast_dtype(device)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype == torch.bfloat16)


def train(
    model: nn.Module,
    loss_fn: LossFn,
    optimizers: Iterable[torch.optim.Optimizer],
    out: Path,
    schedule: Schedule,
    validate: Callable[[nn.Module], dict[str, float]],
    *,
    ema_decay: float = 0.999,
    validate_every_minutes: float = 3.0,
    clip: float = 1.0,
    export: Callable[[nn.Module, Path], None] | None = None,
) -> nn.Module:
    """Trains ``model`` in place for ``schedule.end`` minutes and returns its averaged (EMA) copy.

    Resumes from ``out/state.pt`` if it exists. Appends JSON objects to ``out/log.jsonl`` and
    redraws ``out/curves.png`` at every validation. SIGTERM, SIGINT or a file ``out/STOP`` end the
    run after the current step and save its state. SIGKILL loses at most the progress since the
    last validation. With ``export``, which writes a model to a folder, the averaged model is
    written to ``out`` at the end, and those of the steps 64, 128, 256 and so on to
    ``out/snapshots/STEP``.
    """
    out.mkdir(parents=True, exist_ok=True)
    run = _Run(model, list(optimizers), out)
    with stoppable(out) as stopped:
        run.load()
        next_validation = run.spent + validate_every_minutes
        bar = tqdm(
            total=round(schedule.end, 2),
            initial=round(run.spent, 2),
            mininterval=5,
            bar_format="{l_bar}{bar}| {n:.1f}/{total:.0f} min, {remaining} left {postfix}",
        )
        while run.spent < schedule.end and not stopped():
            started = time.monotonic()
            run.set_rate(schedule.rate(run.spent))
            values = run.advance(loss_fn, schedule.share(run.spent), clip, ema_decay)
            minutes = (time.monotonic() - started) / 60
            run.spent += minutes
            bar.update(min(minutes, max(0.0, bar.total - bar.n)))
            if export and run.step >= FIRST_SNAPSHOT and run.step.bit_count() == 1:
                folder = out / "snapshots" / str(run.step)
                folder.mkdir(parents=True, exist_ok=True)
                export(run.averaged(), folder)
            if run.step % 50 == 0:
                bar.set_postfix_str(_shown(values))
                run.log(values)
            if run.spent >= next_validation or run.spent >= schedule.end:
                scores = validate(run.averaged())
                bar.write(f"step {run.step} {run.spent:.1f} min {_shown(scores)}")
                run.log({**values, **scores})
                run.save()
                plot(out)
                next_validation = run.spent + validate_every_minutes
        bar.close()
        run.save()
        if export:
            export(run.averaged(), out)
    return run.averaged()


def _shown(values: Values) -> str:
    return " ".join(f"{k} {float(v):.4g}" for k, v in values.items())


class _Run:
    """A model in training: its optimizers, its average, its counters and its files."""

    def __init__(
        self, model: nn.Module, optimizers: list[torch.optim.Optimizer], out: Path
    ) -> None:
        self.model = model
        self.optimizers = optimizers
        self.out = out
        self.ema = AveragedModel(model)
        self.step = 0
        self.spent = 0.0
        self.state_file = out / "state.pt"
        self.peak = [[group["lr"] for group in opt.param_groups] for opt in optimizers]

    def set_rate(self, scale: float) -> None:
        """Sets every learning rate to ``scale`` times its peak."""
        for opt, rates in zip(self.optimizers, self.peak, strict=True):
            for group, rate in zip(opt.param_groups, rates, strict=True):
                group["lr"] = rate * scale

    def advance(self, loss_fn: LossFn, share: float, clip: float, ema_decay: float) -> Values:
        """One step; returns what the loss logs."""
        self.model.train()
        loss, values = loss_fn(share)
        for opt in self.optimizers:
            opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        for opt in self.optimizers:
            opt.step()
        self.step += 1
        # A young average must forget its random start: the decay grows to its final value.
        self.ema.multi_avg_fn = get_ema_multi_avg_fn(min(ema_decay, self.step / (self.step + 10)))
        self.ema.update_parameters(self.model)
        return values

    def averaged(self) -> nn.Module:
        """The averaged model, for evaluation."""
        self.ema.module.eval()
        return self.ema.module

    def load(self) -> None:
        """Continues from the state file, if there is one."""
        if not self.state_file.exists():
            return
        state = torch.load(self.state_file, weights_only=True, map_location="cpu")
        self.model.load_state_dict(state["model"])
        self.ema.load_state_dict(state["ema"])
        for opt, saved in zip(self.optimizers, state["optimizers"], strict=True):
            opt.load_state_dict(saved)
        self.step = state["step"]
        self.spent = state["spent"]

    def save(self) -> None:
        """Replaces the state file atomically, on disk before it is renamed."""
        state = {
            "model": self.model.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizers": [opt.state_dict() for opt in self.optimizers],
            "step": self.step,
            "spent": self.spent,
        }
        temporary = self.state_file.with_suffix(".tmp")
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.state_file)

    def log(self, values: Values) -> None:
        """Appends one line to the log."""
        numbers = {name: float(value) for name, value in values.items()}
        row = {"step": self.step, "minutes": round(self.spent, 2), **numbers}
        with (self.out / "log.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def steps_done(out: Path) -> int:
    """Steps of the run in ``out`` so far, to seed the data of its continuation with."""
    state_file = out / "state.pt"
    if not state_file.exists():
        return 0
    return int(torch.load(state_file, weights_only=True, map_location="cpu", mmap=True)["step"])


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
