"""Every change of a job's state, each one atomic Lua script run by the Redis server.

Keys, all under one prefix: ``job:ID`` the record (hash), ``job:ID:events`` its history (stream),
``job:ID:checkpoint`` the last two checkpoints and ``job:ID:previews`` file names by step (hashes),
``queue:PRIOR:TENANT`` a tenant's waiting jobs in the order they are served and ``waiting:PRIOR``
everybody's by age (sorted sets), ``turns:*`` and ``parked:TENANT`` whose turn it is (see
``lua/fairness.lua``), ``leases`` running jobs by lease expiry, ``deadlines`` unfinished jobs by
deadline and ``dead`` given-up jobs by time (sorted sets), ``holders`` what each worker computes
(hash), ``jobs:TENANT`` a client's ids (sorted set, all scores 0: ids sort by time),
``queued:of:TENANT`` and ``running:of:TENANT`` for quotas (sets), ``backlog:PRIOR`` predicted
milliseconds of unfinished jobs and ``backlog:of:TENANT`` a tenant's by prior (hash), ``tally``
their number by state, prior and class (hash), ``ended`` how many ever ended by prior, task and
state (hash), ``idempotency:TENANT:HASH`` what a client's key was used for, ``known:TENANT:SHA256``
which jobs and uploads hold a picture (sorted set), ``upload:ID`` that an upload is kept and
``uploads:TENANT`` a client's uploads by expiry (sorted set), ``stored:TENANT``, ``files:due`` and
``records:due`` what is stored and when it goes (see ``lua/storage.lua``).

A *fence* numbers the claims of a job. A worker may change a job only while it holds the newest one,
so a worker that was given up for dead cannot disturb its successor.

Time is the server's: clocks of API and workers do not matter. Scripts read it through
``lua/clock.lua``, which never goes back: were a lease of 30 s compared with a clock that has since
been set back by an hour, nobody would recover the job for an hour. Each read compares ``TIME`` with
the one before (key ``clock``); after a step back, time continues from where it was at half speed
until the server's has caught up. So whatever was granted for N seconds ends after 2 N at most, and
timestamps are right again after twice the step. Redis' own expiry (``EXPIRE``) follows the server's
raw clock and is used only for what may safely live longer. ``leaders`` has who does a duty until
when (hash), ``orphans`` files without a record by the time they were first seen (sorted set).
"""

from __future__ import annotations

from importlib.resources import files

_LUA = files("service.jobs") / "lua"
_PARTS = ("clock", "helpers", "notify", "fairness", "storage", "steps", "claiming")
"""What every transition begins with; each part uses those before it."""
_ALLOCATING = {"submit", "keep"}
"""A full server refuses these; every other transition may run, for finishing jobs frees memory."""


def lua(name: str) -> str:
    """Source of ``lua/NAME.lua``."""
    return (_LUA / f"{name}.lua").read_text()


def _scripts() -> dict[str, str]:
    helpers = "".join(lua(part) for part in _PARTS)
    return {
        name: ("" if name in _ALLOCATING else "#!lua flags=allow-oom\n")
        + helpers
        + lua(f"transitions/{name}")
        for name in (entry.name.removesuffix(".lua") for entry in (_LUA / "transitions").iterdir())
    }


SCRIPTS = _scripts()
"""The whole source of each script, by name."""
