"""Studies compute on one thread, with deterministic algorithms, as the library's tests do."""

from tests.core.conftest import one_thread

__all__ = ["one_thread"]
