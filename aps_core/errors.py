"""Every error a caller can meet, as one tree.

    APSError
    ├── InvalidSpec          a field or a combination of fields makes no sense
    ├── ImageRejected        a picture cannot be read or is not allowed
    │   └── ImageTooLarge    the restored picture would exceed the device's limit
    ├── JobTooLong           the job would take longer than is allowed
    ├── WeightsMissing       a file of weights is absent
    ├── WeightsInvalid       a file of weights is damaged or of another model
    ├── InsufficientMemory   the job does not fit the device
    ├── SamplingDiverged     the optimisation produced NaN or infinity
    └── SamplingCancelled    the caller asked to stop (not a failure)

``code`` is stable and machine-readable; the message says what was wrong, the value, and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class APSError(Exception):
    """Base class. ``retryable`` tells whether the same request may succeed later."""

    code: str = "internal_error"
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False


class InvalidSpec(APSError):
    """A field, or a combination of fields and pictures, makes no sense."""

    code = "invalid_spec"
    title = "The request does not describe a valid job"


class ImageRejected(APSError):
    """A picture cannot be read or is not allowed; ``code`` may be refined for one instance."""

    code = "image_rejected"
    title = "The picture was refused"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class ImageTooLarge(ImageRejected):
    """The restored picture would exceed the area this device is set up for."""

    code = "image_too_large"
    title = "The picture is too large for this device"


class JobTooLong(APSError):
    """The job would take longer than is allowed; the message says how long, and what would fit."""

    code = "job_too_long"
    title = "The job would take too long"


class WeightsMissing(APSError):
    """A file of weights is absent; the message names it and how to get it."""

    code = "weights_missing"
    title = "Model weights are missing"


class WeightsInvalid(APSError):
    """A file of weights is damaged or belongs to another model; the message names file and key."""

    code = "weights_invalid"
    title = "Model weights do not match the model"


class InsufficientMemory(APSError):
    """The job does not fit the device's memory."""

    code = "insufficient_memory"
    title = "Not enough memory"
    retryable = True


class SamplingDiverged(APSError):
    """The inner optimisation produced NaN or infinity."""

    code = "sampling_diverged"
    title = "The optimisation diverged"


class SamplingCancelled(APSError):
    """The step hook asked to stop."""

    code = "canceled"
    title = "The job was canceled"
