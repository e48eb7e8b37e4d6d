"""On a worker's path, changes what its child finds: ``ALTERED`` says how.

``cuda``: the execution plan and the memory layouts are those of CUDA, on the CPU.
``broken``: loading a prior fails in a way nobody foresaw.
"""

import os

from celery.signals import worker_process_init


@worker_process_init.connect
def alter(**_):
    import torch

    from aps_core.engines.engine import Engine
    from aps_core.tokenizers import group_norm
    from aps_core.tokenizers.execution import ExecutionPlan

    if os.environ["ALTERED"] == "broken":
        setattr(Engine, "load", None)  # noqa: B010 - a type checker refuses the assignment
        return
    plan = ExecutionPlan.default(torch.device("cuda"), torch.bfloat16)
    setattr(ExecutionPlan, "default", classmethod(lambda *_: plan))  # noqa: B010
    setattr(group_norm, "CHANNELS_LAST_DEVICES", ())  # noqa: B010
