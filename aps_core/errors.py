"""The exceptions of the library, as one tree.

    APSError
    ├── InvalidSpec          a field or a combination of fields is invalid
    ├── NothingToRestore     no degradation was found that an operator describes
    ├── ImageRejected        a picture cannot be read or is not allowed
    │   └── ImageTooLarge    the restored picture would exceed the device's limit
    ├── JobTooLong           the job would take longer than is allowed
    ├── WeightsMissing       a weights file is absent
    ├── WeightsInvalid       a weights file is damaged or belongs to another model
    ├── InsufficientMemory   the job does not fit the device
    ├── SamplingDiverged     the optimisation produced NaN or infinity
    └── SamplingCancelled    the caller asked to stop (not a failure)

``code`` is stable and machine-readable; the message says what was wrong, the value, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Self


class APSError(Exception):
    """Base class. ``retryable`` tells whether the same request may succeed later."""

    code: str = "internal_error"
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    field: str = ""
    """The invalid field or picture, with '/' before an inner one; '' if none is to blame."""

    def at(self, field: str) -> Self:
        """This error, with its ``field`` unless that is known already."""
        self.field = self.field or field
        return self


@contextmanager
def about(field: str) -> Iterator[None]:
    """Gives errors raised inside it their :attr:`APSError.field`; also a decorator."""
    try:
        yield
    except APSError as error:
        error.at(field)
        raise


class InvalidSpec(APSError):
    """A field, or a combination of fields and pictures, is invalid."""

    code = "invalid_spec"
    title = "The request does not describe a valid job"


class NothingToRestore(APSError):
    """No degradation was found in the picture that an operator describes."""

    code = "nothing_to_restore"
    title = "Nothing was found to restore"


class ImageRejected(APSError):
    """A picture cannot be read or is not allowed; an instance may set a more specific ``code``."""

    code = "image_rejected"
    title = "The picture was refused"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class ImageTooLarge(ImageRejected):
    """The restored picture would exceed the maximum area configured for this device."""

    code = "image_too_large"
    title = "The picture is too large for this device"


class JobTooLong(APSError):
    """The estimated time exceeds the limit; the message names the estimate and a size that fits."""

    code = "job_too_long"
    title = "The job would take too long"


class WeightsMissing(APSError):
    """A weights file is absent; the message names the file and how to install it."""

    code = "weights_missing"
    title = "Model weights are missing"


class WeightsInvalid(APSError):
    """A weights file is damaged or belongs to another model; the message names the file and key."""

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
    """A hook returned False to stop the run."""

    code = "canceled"
    title = "The job was canceled"
