"""Injects one CUDA error into a worker's decoder in the middle of a job, if on its import path.

The variable ``SABOTAGE`` names a file that contains the kind of error, ``memory`` or ``sticky``.
The file is removed when the error occurs.
"""

import os
from pathlib import Path

from celery.signals import worker_process_init

WORDS = {
    "memory": "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "sticky": "CUDA error: an illegal memory access was encountered",
}


@worker_process_init.connect
def sabotage(**_):
    import torch

    from aps_core.tokenizers.magvit2_net import Decoder

    armed, forward = Path(os.environ["SABOTAGE"]), Decoder.forward
    calls = 0

    def failing(self, z_BDhw):
        nonlocal calls
        calls += (
            z_BDhw.requires_grad and z_BDhw.shape[-1] == 16
        )  # only pictures of the jobs' size, not the self-test's
        if calls % 20 == 0 and armed.exists():
            how = armed.read_text()
            armed.unlink()
            raise (torch.OutOfMemoryError if how == "memory" else RuntimeError)(WORDS[how])
        return forward(self, z_BDhw)

    Decoder.forward = failing
