"""Capturing a step, against a stand-in for the driver: what is closed when a capture fails. And
what the canary of a worker measures beside it.
"""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from aps_core.engines.engine import Engine
from aps_core.sampling import cuda_graph, inner_loop
from aps_core.sampling.cuda_graph import WARM_UP, captured

ONCE = 1e6
"""Seconds that the clock skips where a job would capture its graph."""

BROKEN = "CUDA error: operation failed due to a previous error during capture"


class Device:
    """Streams, one graph and the allocator's pools, as ``torch.cuda`` shows them."""

    OutOfMemoryError = torch.OutOfMemoryError

    def __init__(self, breaks=False):
        self.breaks = breaks
        self.current = "main"
        self.mode = None
        self.recording = False
        self.pools = set()
        self.replays = 0
        self.cuda = SimpleNamespace(
            Stream=lambda: SimpleNamespace(name="side", wait_stream=lambda _: None),
            CUDAGraph=lambda: self,
            current_stream=lambda: SimpleNamespace(wait_stream=lambda _: None),
            stream=self.stream,
            synchronize=lambda: None,
            empty_cache=lambda: None,
            graph_pool_handle=lambda: (0, 1),
            current_device=lambda: 0,
        )
        self._C = SimpleNamespace(
            _cuda_endAllocateToPool=lambda _, pool: self.pools.remove(pool),
            _cuda_releasePool=lambda _, pool: None,
        )

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream.name
        try:
            yield
        finally:
            self.current = before

    def capture_begin(self, pool, capture_error_mode):
        assert self.current == "side", "the default stream cannot be captured"
        self.recording = True
        self.mode = capture_error_mode
        self.pools.add(pool)

    def capture_end(self):
        assert self.recording
        self.recording = False
        if self.breaks:
            raise RuntimeError(BROKEN)
        self.pools.clear()

    def replay(self):
        self.replays += 1


@pytest.fixture
def device(monkeypatch):
    def make(breaks=False):
        made = Device(breaks)
        monkeypatch.setattr(cuda_graph, "torch", made)
        return made

    return make


def test_a_step_is_warmed_up_captured_and_replayed(device):
    gpu, calls = device(), []
    replay = captured(lambda: calls.append(gpu.recording))
    assert calls == [False] * WARM_UP + [True]
    # beside a thread that reads the device's memory, the global mode would break the capture
    assert gpu.mode == "thread_local"
    replay()
    assert (gpu.replays, len(calls), gpu.pools, gpu.current) == (1, WARM_UP + 1, set(), "main")


def failing(gpu, error):
    def step():
        if gpu.recording:
            raise error

    return step


@pytest.mark.parametrize("breaks", [True, False])
def test_a_failed_capture_closes_its_pool_and_the_step_runs_eagerly(device, breaks, caplog):
    gpu = device(breaks)
    step = failing(gpu, RuntimeError("operation not permitted when stream is capturing"))
    assert captured(step) is step
    assert (gpu.pools, gpu.current) == (set(), "main")
    assert "operation not permitted" in caplog.text, "the step's own error, not the capture's"


def test_running_out_of_memory_in_a_capture_is_raised_with_the_pool_closed(device):
    gpu = device()
    with pytest.raises(torch.OutOfMemoryError):
        captured(failing(gpu, torch.OutOfMemoryError("CUDA out of memory")))
    assert (gpu.pools, gpu.current) == (set(), "main")


@pytest.mark.parametrize("prior", ["embedded", "embedded_text"])
def test_the_canary_leaves_out_what_a_job_pays_once(prior, monkeypatch):
    """Capturing and compiling, which take seconds, belong to the first reverse step alone."""
    skipped, clock = 0.0, time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + skipped)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two would wait for each other on a busy machine
    engine = Engine.load(prior)

    def slow_first(cls, name):
        original = getattr(cls, name)

        def run(self, *arguments, **named):
            nonlocal skipped
            if not hasattr(self, "_seen"):
                self._seen, skipped = True, skipped + ONCE
            return original(self, *arguments, **named)

        monkeypatch.setattr(cls, name, run)

    from aps_core.text.aps import RewardAscent

    slow_first(inner_loop.InnerLoop, "run")
    slow_first(RewardAscent, "run")
    rate = engine.seconds_per_token()
    torch.set_num_threads(threads)
    assert skipped == ONCE, "one run, one capture"
    assert 0 < rate < ONCE / (8 * 1024)
