"""Trains the classifier of documents and photographs: ``python -m training.diagnosis.content
--corpus FOLDER --tiles FOLDER``. About twenty minutes on one core.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from aps_core.identify.diagnosis.content import NETWORK, features
from aps_core.identify.diagnosis.perceptron import FOLDER, LARGEST
from training.diagnosis.simulated import arguments, simulations, stored

EPOCHS, BATCH, RATE = 30, 256, 3e-3
DOCUMENT = 3
"""Column of the targets: 1 for a document, else 0."""


def read(y: np.ndarray) -> np.ndarray:
    """Features of a picture (H, W, 3) in [-1, 1], rounded to 8 bits."""
    return features(np.round((y + 1) * 127.5).astype(np.uint8))


def trained(x_NF: Tensor, document_N: Tensor) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Trained network, and mean and standard deviation of its features."""
    torch.manual_seed(0)
    mean, deviation = x_NF.mean(0), x_NF.std(0) + 1e-3
    net = nn.Sequential(
        *(nn.Linear(x_NF.shape[1], 128), nn.ReLU(), nn.Dropout(0.25)),
        *(nn.Linear(128, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 1)),
    )
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    seen_NF = ((x_NF - mean) / deviation).clamp(-LARGEST, LARGEST)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(seen_NF)).split(BATCH):
            answer = net(seen_NF[rows])[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(answer, document_N[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return net.eval(), mean, deviation


def main() -> None:
    args = arguments(__doc__, count=60_000).parse_args()
    torch.set_num_threads(1)
    found = simulations(args, "content", read)
    net, mean, deviation = trained(found.x_NF, found.target_N4[:, DOCUMENT])
    with torch.no_grad():
        answer = net(((found.withheld_MF - mean) / deviation).clamp(-LARGEST, LARGEST))[:, 0]
    right = (answer > 0) == (found.withheld_M4[:, DOCUMENT] > 0)
    print(f"withheld: right {right.float().mean():.3f}")
    arrays = stored(net) | {"mean": mean.numpy(), "deviation": deviation.numpy()}
    np.savez_compressed(FOLDER / f"{NETWORK}.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
