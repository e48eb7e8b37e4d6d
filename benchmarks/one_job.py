"""One restoration job, timed: the part of ``benchmarks.versions`` that runs in a version's tree.

It uses only what 0.1.0 has too. Prints a JSON object: seconds on the clock and of the processor,
the process's peak memory, and joules where the processor shows its counters.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import resource
import time

import torch
from PIL import Image


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("picture")
    parser.add_argument("--version", required=True, choices=["0.1.0", "this"])
    parser.add_argument("--spec", required=True, type=json.loads)
    parser.add_argument("--threads", required=True, type=int)
    parser.add_argument("--no-bfloat16", action="store_true")
    asked = parser.parse_args()
    if asked.no_bfloat16:  # the processor's own answers, which no environment variable changes
        torch.cpu._is_avx512_bf16_supported = lambda: False
        torch.cpu._is_amx_tile_supported = lambda: False
    if asked.version == "0.1.0":
        engine_of = importlib.import_module("aps_core.engine").Engine
        engine = engine_of.load(asked.spec["prior"], threads=asked.threads)
    else:
        process = importlib.import_module("aps_core.runtime.process")
        process.be_reproducible(asked.threads)
        engine = importlib.import_module("aps_core.engines.engine").Engine.load(asked.spec["prior"])
    tasks = importlib.import_module("aps_core.tasks")
    small = asked.spec["working_size"], asked.spec["working_size"]
    file = io.BytesIO()
    Image.open(asked.picture).convert("RGB").resize(small).save(file, "PNG")
    module = "aps_core.images" if asked.version == "0.1.0" else "aps_core.imaging.images"
    inputs = tasks.Inputs(importlib.import_module(module).open_image(file.getvalue()))
    spec = tasks.RestoreSpec(**asked.spec)
    brief = {**asked.spec, "sampler": {"type": "aps", "steps": 1, "inner_steps": 2}}
    if asked.version == "0.1.0":
        brief["sampler"].pop("type")
    tasks.run(tasks.RestoreSpec(**brief), inputs, engine)  # a worker has run jobs before this one
    counters = importlib.import_module("energy").Counters  # beside this script, not in the tree
    energy, started, computed = counters.now(), time.perf_counter(), time.process_time()
    tasks.run(spec, inputs, engine)
    found = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - computed,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **({} if energy is None else {"joules": energy.joules_since()}),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
