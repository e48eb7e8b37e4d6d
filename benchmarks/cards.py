"""Rates of several GPUs, and the time that counted work would take on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """Rates of a GPU. ``conv``, ``prior``: shares of the matrix rate that convolutions and the 8B
    transformer are assumed to reach; memory traffic is assumed 15 % above the count at 85 % of the
    bandwidth.
    """

    name: str
    tflops: float
    """Dense bfloat16 products, summed in float32."""
    gb_per_s: float
    processors: int
    conv: float
    prior: float

    def floor_ms(self, tflop: float, gb: float) -> float:
        """All arithmetic at the matrix rate, then all bytes at full bandwidth."""
        return (tflop / self.tflops + gb / self.gb_per_s) * 1e3

    def model_ms(self, tflop: float, gb: float) -> float:
        """The same at the assumed shares."""
        return (tflop / (self.conv * self.tflops) + 1.15 * gb / (0.85 * self.gb_per_s)) * 1e3

    def one_block_ms(self, tokens: int, channels: int = 512) -> float:
        """Backward attention in one thread block, on one multiprocessor at a tenth of its rate."""
        tflop = 10 * tokens**2 * channels / 1e12
        return tflop / (self.tflops / self.processors * 0.1) * 1e3


CARDS = (
    Card(name="H200", tflops=788, gb_per_s=4300, processors=132, conv=0.65, prior=0.80),
    Card(name="A100", tflops=312, gb_per_s=2000, processors=108, conv=0.60, prior=0.60),
    Card(name="RTX 4090", tflops=165, gb_per_s=1008, processors=128, conv=0.65, prior=0.65),
)
"""Rates: measured for the H200, from the data sheets for the A100 (80 GB) and the RTX 4090."""
