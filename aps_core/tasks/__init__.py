"""Tasks, one file each, found by :func:`aps_core.registry.discover`.

Specs need no torch: the HTTP front end validates jobs with exactly these classes.
"""

import sys

from aps_core.registry import discover
from aps_core.tasks.base import Inputs, TaskSpec, validate_spec
from aps_core.tasks.pictures import PictureTaskSpec
from aps_core.tasks.progress import PictureProgress, Progress, ProgressHook
from aps_core.tasks.results import PictureResult, Result
from aps_core.tasks.running import run
from aps_core.tasks.text_results import TextProgress, TextResult

discover(sys.modules[__name__], "aps.tasks")

from aps_core.tasks.edit import EditSpec  # noqa: E402 - registered by the discovery above
from aps_core.tasks.generate import GenerateSpec  # noqa: E402 - registered by the discovery above
from aps_core.tasks.guide import GuideSpec  # noqa: E402 - registered by the discovery above
from aps_core.tasks.restore import RestoreSpec  # noqa: E402 - registered by the discovery above
from aps_core.tasks.stylize import StylizeSpec  # noqa: E402 - registered by the discovery above

__all__ = [
    "EditSpec",
    "GenerateSpec",
    "GuideSpec",
    "Inputs",
    "PictureProgress",
    "PictureResult",
    "PictureTaskSpec",
    "Progress",
    "ProgressHook",
    "RestoreSpec",
    "Result",
    "StylizeSpec",
    "TaskSpec",
    "TextProgress",
    "TextResult",
    "run",
    "validate_spec",
]
