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
    Card("H200", 788, 4300, 132, 0.65, 0.80),  # both rates measured on such a card
    Card("A100", 312, 2000, 108, 0.60, 0.60),  # data sheet, 80 GB
    Card("RTX 4090", 165, 1008, 128, 0.65, 0.65),  # data sheet
)
