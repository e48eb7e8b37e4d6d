"""Simulated restoration over a folder of clean photographs: methods, baselines, metrics, contact sheet.

Protocol ``native``: the photograph at the prior's size is the truth. Protocol ``upsampled`` (the paper's):
the truth is enlarged twofold before the measurement is taken and the result reduced again before it
is compared, so the sampler sees four times as many measured pixels.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core import images, noise
from aps_core.config import APSConfig
from aps_core.contact_sheet import contact_sheet
from aps_core.engine import ImageEngine
from aps_core.errors import InvalidSpec
from aps_core.metrics import gradient_energy, psnr, ssim
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound, OperatorSpec
from aps_core.samplers.methods import METHODS
from aps_core.types import StepInfo

TASKS: dict[str, dict[str, object]] = {
    "sr4": {"type": "super_resolution", "factor": 4},
    "gaussian_blur": {"type": "gaussian_blur", "sigma": 1.5},
    "inpainting70": {"type": "inpainting", "mask": "random", "fraction": 0.7},
    "hdr": {"type": "hdr"},
    "motion_blur": {"type": "motion_blur", "kernel_size": 15},
}
"""The benchmark's operators, in strengths for 128 pixels (the paper's hold at 512)."""

PROTOCOLS = {"native": 1, "upsampled": 2}


@dataclass(frozen=True)
class Row:
    """One line of the per-image table."""

    protocol: str
    task: str
    image: str
    method: str
    psnr: float
    ssim: float
    gradient_energy: float
    """Relative to the truth's: 1 means as much fine detail."""
    misfit: float
    noise_floor: float
    seconds: float
    decodes: int
    """Pictures decoded on the way: the samplers' budget. 0 where nothing was sampled."""


@dataclass(frozen=True)
class Case:
    """One photograph under one operator and protocol."""

    protocol: str
    task: str
    image: str
    truth_CHW: Tensor
    y_CHW: Tensor
    operator: Bound
    spec: OperatorSpec
    objective: MeasurementObjective
    height: int
    width: int

    def score(self, method: str, x_BCHW: Tensor, misfit: float, seconds: float, decodes: int) -> Row:
        """Metrics against the truth at the truth's own size."""
        truth = self.truth_CHW[None]
        x = F.interpolate(x_BCHW, truth.shape[-2:], mode="bicubic", antialias=True) if x_BCHW.shape[-2:] != truth.shape[-2:] else x_BCHW
        detail = float(gradient_energy(x) / gradient_energy(truth))
        quality = float(psnr(x, truth)), float(ssim(x, truth)), detail
        return Row(self.protocol, self.task, self.image, method, *quality, misfit, self.objective.noise_floor, seconds, decodes)


def photographs(folder: Path, size: int) -> list[tuple[str, Tensor]]:
    """(name, (3, size, size) in [-1, 1]) of every picture in a folder, centre-cropped, sorted by name.

    Raises:
        InvalidSpec: the folder holds no picture.
    """
    found = []
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in {".png", ".jpg", ".jpeg", ".webp"}):
        x = images.to_tensor(images.open_image(path.read_bytes()))
        side = min(x.shape[-2:])
        top, left = (x.shape[-2] - side) // 2, (x.shape[-1] - side) // 2
        found.append((path.stem, images.resize(x[:, top : top + side, left : left + side], (size, size)).clamp(-1, 1)))
    if not found:
        raise InvalidSpec(f"{folder} holds no PNG, JPEG or WebP picture.")
    return found


def make_case(engine: ImageEngine, config: APSConfig, protocol: str, task: str, name: str, truth_CHW: Tensor, sigma: float, seed: int) -> Case:
    """Simulates the measurement of one photograph; the noise depends on ``seed`` alone."""
    x = truth_CHW[None].to(engine.device)
    if PROTOCOLS[protocol] > 1:
        x = F.interpolate(x, scale_factor=float(PROTOCOLS[protocol]), mode="bicubic", antialias=True).clamp(-1, 1)
    spec = OperatorSpec.named(str(TASKS[task]["type"])).model_validate(TASKS[task])
    _, _, height, width = x.shape
    operator = spec.bind((3, height, width), engine.device)
    y = noise.add_noise(operator(x)[0], sigma, torch.Generator(engine.device).manual_seed(seed))
    objective = engine.measurement_objective(operator, y, sigma, config)
    return Case(protocol, task, name, truth_CHW.to(engine.device), y, operator, spec, objective, height, width)


def input_baseline(case: Case) -> Tensor:
    """What a user has without us: bicubic enlargement, normalised Gaussian filling, or the input itself."""
    y = case.y_CHW[None]
    if y.shape[-2:] != (case.height, case.width):
        return F.interpolate(y, (case.height, case.width), mode="bicubic").clamp(-1, 1)
    weight = case.operator.weight
    if weight is None:
        return y.clamp(-1, 1)
    offsets = torch.arange(-4, 5, device=y.device, dtype=y.dtype)
    kernel = torch.exp(-offsets.square()[:, None] / 2 - offsets.square()[None] / 2).expand(3, 1, 9, 9)
    mask = weight.expand_as(y)
    filled = F.conv2d(y * mask, kernel, padding=4, groups=3) / F.conv2d(mask, kernel, padding=4, groups=3).clamp(min=1e-6)
    return torch.where(mask > 0, y, filled).clamp(-1, 1)


def run_method(
    engine: ImageEngine, config: APSConfig, case: Case, method: str, seed: int, batch: int = 1, overrides: Mapping[str, Any] | None = None
) -> tuple[Tensor, int]:
    """Samples (batch, 3, H, W) of one method on one case, and the decodes each of them took.

    ``overrides`` are fields of the method's own settings.
    """
    chosen = METHODS[method]
    decodes = 1  # the last one, of the final tokens

    def count(info: StepInfo) -> None:
        nonlocal decodes
        decodes += len(info.loss_curve)

    sample = chosen.sampler(
        engine.prior,
        case.objective,
        chosen.configured(config, overrides or {}),
        grid=engine.grid(case.height, case.width),
        generator=torch.Generator(engine.device).manual_seed(seed),
        batch=batch,
        on_step=count,
    )
    return sample.x_BCHW[..., : case.height, : case.width].clamp(-1, 1), decodes


def evaluate(
    engine: ImageEngine,
    config: APSConfig,
    folder: Path,
    out: Path,
    *,
    tasks: Iterable[str] = tuple(TASKS),
    methods: Iterable[str] = tuple(METHODS),
    protocols: Iterable[str] = ("native",),
    sigma: float = 0.05,
    seed: int = 0,
    samples: int = 1,
    limit: int | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Runs the benchmark and writes ``per_image.csv``, ``summary.md`` and ``contact_sheet.png`` into ``out``.

    ``samples`` > 1 adds the mean of that many APS samples. ``overrides`` are settings by method, for tuning. Rows already in the CSV are not run again, so an
    interrupted evaluation continues.
    """
    import time

    overrides = overrides or {}
    out.mkdir(parents=True, exist_ok=True)
    table = out / "per_image.csv"
    rows = read_rows(table)
    done = {(r.protocol, r.task, r.image, r.method) for r in rows}
    pictures = out / "pictures"
    pictures.mkdir(exist_ok=True)

    def record(case: Case, method: str, x: Tensor, seconds: float, decodes: int) -> None:
        misfit = float(case.objective(F.interpolate(x, (case.height, case.width), mode="bicubic") if x.shape[-2:] != (case.height, case.width) else x)[1])
        row = case.score(method, x, misfit, seconds, decodes)
        rows.append(row)
        with table.open("a", newline="") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(Row)])
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(asdict(row))
        images.to_pil(x[0]).save(pictures / f"{case.protocol}-{case.task}-{case.image}-{method}.png")
        report(row)

    photos = photographs(folder, engine.spec.native_size[0])[:limit]
    for protocol in protocols:
        for number, (name, truth) in enumerate(photos):
            for task in tasks:
                case = make_case(engine, config, protocol, task, name, truth, sigma, seed + number)
                todo = ["ceiling", "input", *methods, *([f"aps_mean{samples}"] if samples > 1 else [])]
                for method in (m for m in todo if (protocol, task, name, m) not in done):
                    started, decodes = time.perf_counter(), 0
                    if method == "ceiling":
                        x = round_trip(engine, truth)
                    elif method == "input":
                        x = input_baseline(case)
                        images.to_pil(case.y_CHW.clamp(-1, 1)).save(pictures / f"{protocol}-{task}-{name}-measurement.png")
                        images.to_pil(truth).save(pictures / f"{protocol}-{task}-{name}-truth.png")
                    elif method.startswith("aps_mean"):
                        drawn, decodes = run_method(engine, config, case, "aps", seed + 1, samples, overrides.get("aps"))
                        x, decodes = drawn.mean(0, keepdim=True), decodes * samples
                    else:
                        x, decodes = run_method(engine, config, case, method, seed, overrides=overrides.get(method))
                    record(case, method, x, time.perf_counter() - started, decodes)
    (out / "summary.md").write_text(summary(rows))
    contact_sheet(out, [(r.protocol, r.task, r.image) for r in rows], list(dict.fromkeys(r.method for r in rows)))
    return rows


def round_trip(engine: ImageEngine, truth_CHW: Tensor) -> Tensor:
    """The tokenizer's encode-decode of the truth (1, 3, H, W): a reference for what its codes can show."""
    tokenizer = engine.prior.tokenizer
    _, height, width = truth_CHW.shape
    with torch.no_grad():
        codes = tokenizer.encode(truth_CHW[None].to(engine.device))
        return tokenizer.decode(tokenizer.codebook_KD[codes], engine.grid(height, width)).clamp(-1, 1)


def read_rows(table: Path) -> list[Row]:
    """Rows of an earlier, perhaps interrupted, evaluation.

    Raises:
        InvalidSpec: the table has other columns than this version writes.
    """
    if not table.exists():
        return []
    columns = {f.name: {"str": str, "int": int}.get(str(f.type), float) for f in fields(Row)}
    with table.open(newline="") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or []) != list(columns):
            raise InvalidSpec(f"{table} was written by another version (its columns differ); choose another output folder or remove it.")
        return [Row(**{name: read(line[name]) for name, read in columns.items()}) for line in reader]


def summary(rows: list[Row]) -> str:
    """Markdown tables of means, one a protocol: PSNR / SSIM by task and method, then detail and misfit."""
    lines = []
    for protocol in dict.fromkeys(r.protocol for r in rows):
        mine = [r for r in rows if r.protocol == protocol]
        methods = list(dict.fromkeys(r.method for r in mine))
        photos = len({r.image for r in mine})
        for title, cell in (
            ("PSNR dB / SSIM", lambda rs: f"{mean(r.psnr for r in rs):.2f} / {mean(r.ssim for r in rs):.3f}"),
            (
                "gradient energy (truth = 1) / misfit over noise floor",
                lambda rs: f"{mean(r.gradient_energy for r in rs):.2f} / {mean(r.misfit / max(r.noise_floor, 1e-9) for r in rs):.2f}",
            ),
        ):
            lines += [f"Protocol `{protocol}`, {photos} photographs: {title}", "", "| task | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
            for task in dict.fromkeys(r.task for r in mine):
                cells = []
                for method in methods:
                    chosen = [r for r in mine if r.task == task and r.method == method]
                    count = "" if len(chosen) in (0, photos) else f" (n={len(chosen)})"
                    cells.append(cell(chosen) + count if chosen else "")
                lines.append(f"| {task} | " + " | ".join(cells) + " |")
            lines.append("")
    return "\n".join(lines)


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean."""
    listed = list(values)
    return sum(listed) / len(listed)
