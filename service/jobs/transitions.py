"""All state transitions of jobs. Each one is an atomic Lua script run by the Redis server.

Keys, all under one prefix:

* ``job:ID``: the record (hash); ``job:ID:events``: its history (stream); ``job:ID:checkpoint``: the
  last two checkpoints (hash); ``job:ID:previews``: file names by step (hash); ``job:ID:current``:
  JPEG of the estimate within the current step (string, for a minute); ``job:ID:links``: hashes of
  the links to its result by the time they end (sorted set).
* ``queue:PRIOR:TENANT``: a tenant's queued jobs in service order; ``waiting:PRIOR``: all queued
  jobs by age (sorted sets); ``turns:*`` and ``parked:TENANT``: the fair schedule, see
  ``lua/fairness.lua``.
* ``leases``: running jobs by lease expiry; ``deadlines``: unfinished jobs by deadline; ``dead``:
  dead-lettered jobs by time (sorted sets); ``holders``: the job of each worker (hash).
* ``jobs:TENANT``: a tenant's job ids (sorted set with equal scores: ids sort by time);
  ``queued:of:TENANT`` and ``running:of:TENANT``: for quotas (sets).
* ``backlog:PRIOR``: predicted milliseconds of unfinished jobs; ``backlog:of:TENANT``: a tenant's
  share by prior (hash); ``tally``: unfinished jobs by state, prior and priority (hash); ``ended``:
  finished jobs by prior, task and state (hash).
* ``idempotency:TENANT:HASH``: the request that used an idempotency key; ``known:TENANT:SHA256``:
  the jobs and uploads that hold a picture (sorted set); ``upload:ID``: an upload that has not
  expired; ``uploads:TENANT``: a tenant's uploads by expiry (sorted set); ``stored:TENANT``,
  ``files:due`` and ``records:due``: storage and its expiry, see ``lua/storage.lua``.
* ``batch:ID``: which jobs were submitted together (JSON, see ``batches.py``); ``batch:ID:open``:
  those that have not ended, and ``request`` while the batch is being submitted (set).
* ``clock``: see below; ``leaders``: until when each duty is assigned (hash); ``orphans``: files
  without a record, by the time they were first seen (sorted set).

A *fence* numbers the claims of a job. Only the holder of the newest fence may change the job, so a
worker whose lease has expired cannot interfere with its successor.

Time is the server's; the clocks of API and workers do not matter. Scripts read it through
``lua/clock.lua``, which is monotonic: if the server's clock were set back by an hour, a 30 s lease
would otherwise take an hour longer to expire. After a step back, the store's clock continues at
half speed until the server's clock has caught up. A period granted for N seconds therefore ends
after at most 2 N, and timestamps are correct again after twice the step. Redis' own expiry
(``EXPIRE``) follows the server's raw clock and is used only where a longer life is harmless.
"""

from __future__ import annotations

from importlib.resources import files

_LUA = files("service.jobs") / "lua"
_PARTS = ("clock", "helpers", "notify", "fairness", "storage", "steps", "claiming")
"""Files prepended to every transition; each one may use those before it."""
_ALLOCATING = {"submit", "keep"}
"""Transitions refused when the server is out of memory. All others may run: finishing jobs frees
memory.
"""


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
"""Full source of each script, by name."""
