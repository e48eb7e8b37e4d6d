"""On a worker's path, makes its decoder fail once, in the middle of the first job, as a GPU would: SABOTAGE says how.

``SABOTAGE_FLAG`` names a file that is made when it has happened, so that the next child is left alone.
"""

import os
from pathlib import Path

from celery.signals import worker_process_init

WORDS = {"memory": "CUDA out of memory. Tried to allocate 2.00 GiB.", "sticky": "CUDA error: an illegal memory access was encountered"}


@worker_process_init.connect
def sabotage(**_):
    import torch

    from aps_core.tokenizers.magvit2_net import Decoder

    how = os.environ["SABOTAGE"]
    kind = torch.OutOfMemoryError if how == "memory" else RuntimeError
    flag, forward = Path(os.environ["SABOTAGE_FLAG"]), Decoder.forward
    calls = 0

    def failing(self, z_BDhw):
        nonlocal calls
        calls += z_BDhw.requires_grad and z_BDhw.shape[-1] == 16  # the jobs' size, not the canary's
        if calls == 20 and not flag.exists():
            flag.touch()
            raise kind(WORDS[how])
        return forward(self, z_BDhw)

    Decoder.forward = failing
