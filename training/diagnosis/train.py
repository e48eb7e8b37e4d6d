"""Trains the blur estimator: ``python -m training.diagnosis.train --corpus FOLDER --tiles FOLDER``.

Simulates degradations of training pictures, stores their features, trains a small network, and
calibrates its confidence on withheld pictures. About three quarters of an hour on one core.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from aps_core.identify.diagnosis.blur import (
    ANSWERS,
    DEVIATIONS,
    DIRECTION,
    DOCUMENT,
    FAMILIES,
    NETWORK,
    SHARES,
    SIZES,
)
from aps_core.identify.diagnosis.features import ANGLES, RADII, features
from aps_core.identify.diagnosis.perceptron import FOLDER, LARGEST
from aps_core.imaging.images import LUMA
from training.diagnosis.simulated import arguments, simulations, stored

EPOCHS, BATCH, RATE = 100, 256, 2e-3
SPECTRUM, BY_DIRECTION = RADII * ANGLES, slice(RADII * ANGLES + 12, RADII * ANGLES + 20)


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
    """Sum of the cross-entropies of family and content, the negative log likelihood of the true
    family's size, and the squared error of its direction.
    """
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
    """Trained network, and mean and standard deviation of its features."""
    torch.manual_seed(seed)
    mean, deviation = x_NF.mean(0), x_NF.std(0) + 1e-3
    net = nn.Sequential(
        *(nn.Linear(x_NF.shape[1], 384), nn.ReLU(), nn.Dropout(0.12)),
        *(nn.Linear(384, 128), nn.ReLU(), nn.Linear(128, ANSWERS)),
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
            answer = net(((x - mean) / deviation).clamp(-LARGEST, LARGEST))
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
    """Temperature of the logits with the highest likelihood, and factor of the sizes' deviations
    with which 95 % of the errors lie within 1.96 deviations.
    """
    family = target_N4[:, 0].long()
    temperatures = np.geomspace(0.5, 4, 60)
    entropy = [
        float(nn.functional.cross_entropy(answer_NA[:, SHARES] / t, family)) for t in temperatures
    ]
    blurred = (family > 0) & (answer_NA[:, SHARES].argmax(1) == family)
    index = (family[blurred] - 1)[:, None]
    mean, spread = (answer_NA[blurred, at].gather(1, index)[:, 0] for at in (SIZES, DEVIATIONS))
    error = (target_N4[blurred, 1] - mean).abs() / spread.clamp(-4, 2).exp()
    return float(temperatures[int(np.argmin(entropy))]), float(error.quantile(0.95)) / 1.96


def main() -> None:
    args = arguments(__doc__, count=80_000).parse_args()
    torch.set_num_threads(1)
    found = simulations(args, "blur", lambda y: features([y @ LUMA]).vector())
    net, mean, deviation = trained(found.x_NF, found.target_N4)
    with torch.no_grad():
        answer = net(((found.withheld_MF - mean) / deviation).clamp(-LARGEST, LARGEST))
    right = (answer[:, SHARES].argmax(1) == found.withheld_M4[:, 0]).float().mean()
    temperature, widening = calibrated(answer, found.withheld_M4)
    print(f"withheld: family right {right:.3f}, temperature {temperature:.2f}, x {widening:.2f}")
    arrays = stored(net)
    arrays |= {"mean": mean.numpy(), "deviation": deviation.numpy()}
    arrays |= {"temperature": np.array(temperature), "widening": np.array(widening)}
    np.savez_compressed(FOLDER / f"{NETWORK}.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
