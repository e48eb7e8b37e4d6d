"""What each preset costs and gives: seconds, PSNR and SSIM of the default sampler.

    python -m research.presets.compare examples/photos
    python -m research.presets.compare examples/documents --prior embedded_documents

Restores every picture at 128 pixels on every task with the presets fast, balanced and best.
Measurement and seed are the same for all presets. Rows are appended to a CSV file, and an
interrupted run continues. Printed for each task and preset: means over pictures, the difference
to balanced with its 95 % interval, paired over pictures, and the median seconds of a job.
"""

from __future__ import annotations

import statistics

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.photographs import photographs
from aps_core.evaluation.rows import Row
from aps_core.evaluation.run import Variant
from aps_core.evaluation.tables import markdown, mean
from aps_core.priors.base import PRESETS
from aps_core.runtime.process import be_reproducible
from aps_core.samplers import SamplerSpec
from research.common.pictures import SIDE, middles
from research.common.tables import gained
from research.common.variants import TASKS, arguments, run_variants


def summary(rows: list[Row]) -> str:
    """One line per task and preset, for the photographs that all presets have."""
    found = {(row.task, row.method, row.image): row for row in rows}
    lines = []
    for task in TASKS:
        common = set.intersection(
            *({row.image for row in rows if (row.task, row.method) == (task, p)} for p in PRESETS)
        )
        for preset in PRESETS:
            chosen = [found[task, preset, name] for name in sorted(common)]
            usual = [found[task, "balanced", name] for name in sorted(common)]
            gain = gained([row.psnr - other.psnr for row, other in zip(chosen, usual, strict=True)])
            quality = f"{mean(r.psnr for r in chosen):.2f} / {mean(r.ssim for r in chosen):.3f}"
            difference = "" if preset == "balanced" else gain
            seconds = f"{statistics.median(row.seconds for row in chosen):.1f}"
            lines.append([task, preset, quality, difference, seconds])
    return markdown(["task", "preset", "PSNR dB / SSIM", "minus balanced, dB", "seconds"], lines)


def main() -> None:
    parser = arguments(__doc__, "presets.csv")
    parser.add_argument("--every", type=int, default=1, help="use every Nth picture")
    parser.add_argument("--prior", default="embedded")
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    engine = ImageEngine.load(asked.prior)
    method = engine.spec.restoring_sampler
    variants: dict[str, tuple[ImageEngine, Variant]] = {
        preset: (
            engine,
            Variant(
                method=method,
                settings=engine.spec.recommended_for(SamplerSpec.named(method), preset=preset),
            ),
        )
        for preset in PRESETS
    }
    documents = engine.spec.content == "documents"
    every, folder = asked.every, asked.photographs
    pictures = middles(folder, every) if documents else photographs(folder, SIDE)[::every]
    print(summary(run_variants(variants, pictures, asked.out)))


if __name__ == "__main__":
    main()
