"""Times the inner optimisation (decoder, softmax, Adam) of the embedded prior against a naive version.

    python benchmarks/inner_loop.py --threads 1

Naive: float32 weights, every token's logits optimised although half of them are decided, Adam without
fusion. Ours: the engine's dtype, masked rows only, fused Adam. Prints milliseconds a step and their ratio.
"""

import argparse
import platform
import statistics
import time

import torch

from aps_core.aps import quantized_expectation
from aps_core.config import APSConfig
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.priors.embedded import fast_dtype
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.types import MASK
from aps_core.weights import EMBEDDED

GRID, INNER = (32, 32), 5


def naive_step(tokenizer: MagvitTokenizer, phi: torch.Tensor, adam: torch.optim.Optimizer, objective: MeasurementObjective) -> None:
    """One inner step over the whole table of logits."""
    x_bar = phi.softmax(-1) @ tokenizer.codebook_KD
    x = torch.where(x_bar > 0, 1.0, -1.0)
    x_hat = tokenizer.decode((x_bar + (x - x_bar).detach())[None], GRID)
    adam.zero_grad()
    objective(x_hat)[0].sum().backward()
    adam.step()


def milliseconds(run: object, steps: int, repeats: int) -> float:
    """Median over repeats, after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        run()  # type: ignore[operator]
        times.append((time.perf_counter() - started) / steps * 1e3)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = EMBEDDED / "image" / "tokenizer"
    tokens = GRID[0] * GRID[1]
    generator = torch.Generator().manual_seed(0)
    y = torch.rand(3, 128, 128, generator=generator) * 2 - 1
    objective = MeasurementObjective(Bound(lambda x: x), y, 0.05)
    logits = torch.randn(1, tokens, 4096, generator=generator)
    z = torch.where(torch.rand(1, tokens, generator=generator) < 0.5, MASK, torch.randint(4096, (1, tokens), generator=generator))

    plain = load_magvit(folder, "cpu", torch.float32)
    phi = logits[0].clone().requires_grad_()
    adam = torch.optim.Adam([phi], lr=1.0, foreach=False)
    naive = milliseconds(lambda: naive_step(plain, phi, adam, objective), 1, args.repeats)

    dtype = fast_dtype(torch.device("cpu"))
    tokenizer = load_magvit(folder, "cpu", dtype)
    config = APSConfig(inner_steps=INNER)
    ours = milliseconds(lambda: quantized_expectation(logits[z == MASK], z, tokenizer, objective, config, GRID, 0.1), INNER, args.repeats)

    print(f"{platform.processor() or platform.machine()}, {args.threads} thread(s), torch {torch.__version__}, 128x128 pixels, half the tokens masked")
    print(f"naive {naive:.1f} ms, ours ({str(dtype).removeprefix('torch.')}) {ours:.1f} ms a step: {naive / ours:.2f} times faster")


if __name__ == "__main__":
    main()
