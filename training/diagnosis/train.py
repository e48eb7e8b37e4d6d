"""Trains the blur estimator: ``python -m training.diagnosis.train --corpus FOLDER --tiles FOLDER``.

Simulates degradations of training pictures, stores their features, trains a small network, and
calibrates its confidence on withheld pictures. About half an hour on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aps_core.diagnosis.blur import (
    ANSWERS,
    DEVIATIONS,
    DIRECTION,
    DOCUMENT,
    FAMILIES,
    SHARES,
    SIZES,
)
from aps_core.diagnosis.features import ANGLES, RADII, features
from aps_core.imaging.images import LUMA
from training.diagnosis import pictures
from training.diagnosis.simulate import degraded, drawn

SIDES = (96, 128, 160, 192, 256)
EPOCHS, BATCH, RATE = 60, 256, 2e-3
SPECTRUM, BY_DIRECTION = RADII * ANGLES, slice(RADII * ANGLES + 12, RADII * ANGLES + 20)


def simulated(draws: list[pictures.Draw], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features (count, F), and targets (count, 4): family, logarithm of the size, angle in radians,
    whether it is a document. Draws alternate; the second draws documents.
    """
    rng, vectors, targets = np.random.default_rng(seed), [], []
    for number in range(count):
        document = number % len(draws)
        truth = drawn(rng, bool(document))
        y = degraded(draws[document](rng, int(rng.choice(SIDES))), truth, rng)
        vectors.append(features([y @ LUMA]).vector())
        family = FAMILIES.index(truth.family)
        targets.append([family, np.log(truth.size), np.radians(truth.angle), document])
    return torch.tensor(np.array(vectors)).float(), torch.tensor(np.array(targets)).float()


def mirrored(x_NF: Tensor, target_N4: Tensor, transpose: bool) -> tuple[Tensor, Tensor]:
    """Features of the mirrored or transposed pictures."""
    quarter, half = (ANGLES // 2, 3) if transpose else (0, 7)
    order = (quarter - torch.arange(ANGLES)) % ANGLES
    x, target = x_NF.clone(), target_N4.clone()
    x[:, :SPECTRUM] = x_NF[:, :SPECTRUM].view(-1, RADII, ANGLES)[:, :, order].flatten(1)
    x[:, BY_DIRECTION] = x_NF[:, BY_DIRECTION][:, (half - torch.arange(8)) % 8]
    target[:, 2] = (torch.pi / 2 if transpose else torch.pi) - target_N4[:, 2]
    return x, target


def loss_of(answer_NA: Tensor, target_N4: Tensor) -> Tensor:
    """Cross-entropy of the family, likelihood of size and direction of the true one."""
    family = target_N4[:, 0].long()
    total = nn.functional.cross_entropy(answer_NA[:, SHARES], family, label_smoothing=0.01)
    blurred = family > 0
    index = (family[blurred] - 1)[:, None]
    mean = answer_NA[blurred, SIZES].gather(1, index)[:, 0]
    spread = answer_NA[blurred, DEVIATIONS].gather(1, index)[:, 0].clamp(-4, 2)
    error = (target_N4[blurred, 1] - mean) / spread.exp()
    total = total + (error.square() / 2).clamp(max=20).mean() + spread.mean()
    moved = family == FAMILIES.index("motion")
    double = 2 * target_N4[moved, 2]
    direction = torch.stack([double.cos(), double.sin()], 1)
    total = total + (answer_NA[moved, DIRECTION] - direction).square().sum(1).mean()
    page = nn.functional.binary_cross_entropy_with_logits(answer_NA[:, DOCUMENT], target_N4[:, 3])
    return total + page


def trained(x_NF: Tensor, target_N4: Tensor, seed: int = 0) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Network, mean and deviation of the features."""
    torch.manual_seed(seed)
    mean, deviation = x_NF.mean(0), x_NF.std(0) + 1e-3
    net = nn.Sequential(
        *(nn.Linear(x_NF.shape[1], 256), nn.ReLU(), nn.Dropout(0.15)),
        *(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, ANSWERS)),
    )
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(x_NF)).split(BATCH):
            x, target = x_NF[rows], target_N4[rows]
            for transpose in (False, True):
                if torch.rand(()) < 0.5:
                    x, target = mirrored(x, target, transpose)
            answer = net(((x - mean) / deviation).clamp(-6, 6))
            loss = loss_of(answer, target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(rows)
        schedule.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {total / len(x_NF):.3f}", flush=True)
    return net.eval(), mean, deviation


@torch.no_grad()
def calibrated(answer_NA: Tensor, target_N4: Tensor) -> tuple[float, float]:
    """Temperature of the logits, and factor of the sizes' deviations, of largest likelihood."""
    family = target_N4[:, 0].long()
    temperatures = np.geomspace(0.5, 4, 60)
    entropy = [
        float(nn.functional.cross_entropy(answer_NA[:, SHARES] / t, family)) for t in temperatures
    ]
    blurred = (family > 0) & (answer_NA[:, SHARES].argmax(1) == family)
    index = (family[blurred] - 1)[:, None]
    mean, spread = (answer_NA[blurred, at].gather(1, index)[:, 0] for at in (SIZES, DEVIATIONS))
    error = (target_N4[blurred, 1] - mean).abs() / spread.clamp(-4, 2).exp()
    # 95 % of the errors lie within 1.96 deviations
    return float(temperatures[int(np.argmin(entropy))]), float(error.quantile(0.95)) / 1.96


def cached(path: Path, draws: list[pictures.Draw], count: int, seed: int) -> tuple[Tensor, Tensor]:
    if not path.exists():
        x, target = simulated(draws, count, seed)
        np.savez(path, x=x.numpy(), target=target.numpy())
    stored = np.load(path)
    return torch.tensor(stored["x"]), torch.tensor(stored["target"])


def stored(net: nn.Sequential) -> dict[str, NDArray[np.floating[Any]]]:
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    return {
        f"{name}{number}": getattr(layer, name).detach().numpy().astype(np.float16)
        for number, layer in enumerate(linear, 1)
        for name in ("weight", "bias")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--tiles", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/diagnosis"))
    parser.add_argument("--count", type=int, default=80_000)
    parser.add_argument("--shards", type=int, default=20)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    each = args.count // args.shards

    def shard(number: int) -> tuple[Tensor, Tensor]:
        draws = [pictures.photographs(args.corpus, False), pictures.documents(args.tiles, number)]
        return cached(args.work / f"train-{number}.npz", draws, each, number)

    shards = [shard(number) for number in range(args.shards)]
    withheld = [pictures.photographs(args.corpus, True), pictures.withheld_documents(args.tiles, 1)]
    x_val, target_val = cached(args.work / "withheld.npz", withheld, each, 10_000)
    net, mean, deviation = trained(
        torch.cat([x for x, _ in shards]), torch.cat([target for _, target in shards])
    )
    with torch.no_grad():
        answer = net(((x_val - mean) / deviation).clamp(-6, 6))
    right = (answer[:, SHARES].argmax(1) == target_val[:, 0]).float().mean()
    temperature, widening = calibrated(answer, target_val)
    print(f"withheld: family right {right:.3f}, temperature {temperature:.2f}, x {widening:.2f}")
    target = Path("aps_core/embedded/diagnosis")
    target.mkdir(parents=True, exist_ok=True)
    arrays = stored(net)
    arrays |= {"mean": mean.numpy(), "deviation": deviation.numpy()}
    arrays |= {"temperature": np.array(temperature), "widening": np.array(widening)}
    np.savez_compressed(target / "blur.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
