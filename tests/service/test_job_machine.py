"""Stateful test: the invariants of the job protocol hold in random histories with many workers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from aps_contract import JobError, JobState, Progress
from service.jobs import Claim, Job, JobStore, new_job_id

OWNERS = st.sampled_from(["a", "b", "c"])
MAX_ATTEMPTS = 3


class Protocol(RuleBasedStateMachine):
    """Workers claim, step, finish, disappear and return; the user cancels; the sweeper runs at any
    time.
    """

    redis: Redis

    def __init__(self) -> None:
        super().__init__()
        self.redis.flushall()
        self.store = JobStore(self.redis, max_attempts=MAX_ATTEMPTS)
        job_id = new_job_id()
        fields = {
            "task": "restore",
            "prior": "p",
            "spec": {},
            "inputs": {},
            "image_size": (1, 1),
            "output_size": (1, 1),
        }
        self.job = Job.model_validate({"id": job_id, **fields})
        self.store.submit(self.job)
        self.claims: list[Claim] = []
        """All claims granted so far, newest last; only the newest may be valid."""
        self.live = False
        """Whether the newest claim should be valid."""
        self.owner = ""
        self.leased = False
        """Whether the lease of the newest claim has not expired."""
        self.step = 0
        self.saved: int | None = None
        self.version = 0
        self.ended: JobState | None = None
        self.stale = 0

    # -- rules ------------------------------------------------------------------------------------

    @rule(owner=OWNERS)
    def claim(self, owner: str) -> None:
        before = self.current()
        answer = self.store.claim(self.job.id, owner)
        if isinstance(answer, Claim):
            assert not before.state.terminal
            assert self.stale < MAX_ATTEMPTS, "a poison job is not handed out"
            assert not before.cancel_requested
            assert not self.leased or owner == self.owner, "nobody takes a leased job from another"
            assert all(answer.fence > old.fence for old in self.claims)
            self.claims.append(answer)
            self.live = True
            self.stale += 1
            self.owner = owner
            self.leased = True
        else:
            assert answer != "missing"
            assert (answer == "leased") == (self.leased and owner != self.owner)
            if answer in ("poisoned", "canceled"):
                self.live = self.leased = False

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def take_a_step(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        answer = self.store.step(
            claim,
            Progress(step=self.step + 1, total=99),
            {"step": self.step + 1},
            f"{self.step + 1}".encode(),
        )
        if self.allowed(claim):
            assert answer in ("run", "cancel")
            assert (answer == "cancel") == self.current().cancel_requested
            self.step += 1
            self.saved = self.step
            self.stale = 0
            self.leased = True
        else:
            assert answer == "lost"

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        assert (self.store.heartbeat(claim) == "lost") == (not self.allowed(claim))
        self.leased = self.leased or self.allowed(claim)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        allowed = self.allowed(claim)
        assert self.store.release(claim) == allowed
        if allowed:
            self.live = False
            self.leased = False
            self.stale = max(0, self.stale - 1)

    @precondition(lambda self: len(self.claims) > 2)  # leaves time for something to happen first
    @rule(data=st.data(), how=st.sampled_from(["succeed", "fail", "canceled"]))
    def end(self, data: st.DataObject, how: str) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        allowed = self.allowed(claim)
        if how == "succeed":
            done = self.store.succeed(claim, [], {}, None)
        elif how == "fail":
            done = self.store.fail(claim, JobError(code="x", title="x", detail="x"))
        else:
            done = self.store.canceled(claim, [])
        assert done == allowed
        if done:
            self.live = self.leased = False

    @rule()
    def lease_runs_out(self) -> None:
        if self.redis.zscore("aps:leases", self.job.id) is not None:
            self.redis.zadd("aps:leases", {self.job.id: 1})
            self.leased = False

    @rule()
    def sweep(self) -> None:
        found = self.store.expired()
        assert bool(found) == (self.live and not self.leased)
        if found:
            self.live = False

    @precondition(lambda self: len(self.claims) > 2)
    @rule()
    def cancel(self) -> None:
        self.store.cancel(self.job.id)

    # -- invariants -------------------------------------------------------------------------------

    @invariant()
    def versions_only_grow(self) -> None:
        version = self.current().version
        assert version >= self.version
        self.version = version
        seen = [event.data["version"] for event in self.store.events(self.job.id, count=2000)]
        assert seen == list(range(1, version + 1)), "every change is one event, in order"

    @invariant()
    def terminal_is_final(self) -> None:
        state = self.current().state
        if self.ended is not None:
            assert state is self.ended
        if state.terminal:
            self.ended = state
            assert not self.live or state is JobState.CANCELED
            self.live = self.leased = False
            assert [event.type for event in self.store.events(self.job.id, count=2000)].count(
                "done"
            ) == 1

    @invariant()
    def no_job_is_lost(self) -> None:
        """An unfinished job is either in its queue or under a lease, so the sweeper finds it."""
        waiting, leased = (
            self.store.queue_position(self.job) is not None,
            self.redis.zscore("aps:leases", self.job.id) is not None,
        )
        state = self.current().state
        assert waiting == (state is JobState.QUEUED)
        assert leased == (state is JobState.RUNNING)

    @invariant()
    def attempts_are_bounded(self) -> None:
        assert self.current().stale_attempts == self.stale <= MAX_ATTEMPTS

    @invariant()
    def the_last_step_is_kept(self) -> None:
        checkpoint = self.store.load_checkpoint(self.job.id)
        if self.current().state.terminal:
            assert checkpoint is None
        elif self.saved is not None:
            assert checkpoint == (self.saved, f"{self.saved}".encode())

    # ---------------------------------------------------------------------------------------------

    def current(self) -> Job:
        job = self.store.get(self.job.id)
        assert job is not None
        return job

    def allowed(self, claim: Claim) -> bool:
        return self.live and claim == self.claims[-1]


@pytest.fixture
def machine(redis: Redis) -> type[Protocol]:
    Protocol.redis = redis
    return Protocol


def test_every_history_satisfies_the_invariants(machine: type[Protocol]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
