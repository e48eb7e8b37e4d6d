"""Every change of a job's state, each one atomic Lua script run by the Redis server.

Keys, all under one prefix: ``job:ID`` the record (hash), ``job:ID:events`` its history (stream),
``job:ID:checkpoint`` the last two checkpoints and ``job:ID:previews`` file names by step (hashes),
``queued:PRIOR`` waiting jobs in the order they are served and ``waiting:PRIOR`` by age, ``leases`` running jobs by lease expiry,
``deadlines`` unfinished jobs by deadline and ``dead`` given-up jobs by time (sorted sets), ``holders`` what
each worker computes (hash), ``jobs:TENANT`` a client's ids (sorted set, all scores 0: ids sort by time), ``tenants`` whose
they are (set), ``queued:of:TENANT`` and ``running:of:TENANT`` for quotas (sets), ``backlog:PRIOR`` predicted
milliseconds of unfinished jobs, ``tally`` their number by state, prior and class (hash), ``ended`` how many
ever ended by prior, task and state (hash), ``idempotency:TENANT:HASH`` what a client's key was used for,
``known:TENANT:SHA256`` which jobs and uploads hold a picture (sorted set), ``upload:ID`` that an upload is kept
and ``uploads:TENANT`` a client's uploads by expiry (sorted set).

A *fence* numbers the claims of a job. A worker may change a job only while it holds the newest one,
so a worker that was given up for dead cannot disturb its successor. Time is the server's: clocks of
API and workers do not matter.
"""

from __future__ import annotations

from service.jobs.prelude import PRELUDE

SUBMIT = """
-- ARGV: id, idempotency entry, fingerprint, its seconds, most waiting jobs, most seconds of backlog, prior, tenant,
-- field, value, ... ; returns {what happened, id or number} and of a new job the record and its place in the queue
local entry, fingerprint, most, longest = ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local prior, owner = ARGV[7], ARGV[8]
if redis.call('EXISTS', job) == 1 then return {'known', id} end
if entry ~= '' then
  local before = redis.call('HMGET', entry, 'fingerprint', 'job')
  if before[2] then return {before[1] == fingerprint and 'known' or 'conflict', before[2]} end
end
if most > 0 and redis.call('SCARD', prefix .. 'queued:of:' .. owner) >= most then return {'quota', tostring(most)} end
local behind = tonumber(redis.call('GET', prefix .. 'backlog:' .. prior) or 0) / 1000
if longest > 0 and behind > longest then return {'full', tostring(behind)} end
set('id', id, 'prior', prior, 'tenant', owner, unpack(ARGV, 9))
set('attempt', 0, 'stale_attempts', 0, 'fence', 0, 'created_at', text(now), 'rung_at', text(now))
enqueue()
if get('cancel_after_seconds') then
  set('deadline', text(now + tonumber(get('cancel_after_seconds'))))
  redis.call('ZADD', deadlines, get('deadline'), id)
end
redis.call('ZADD', index(), 0, id)
redis.call('SADD', prefix .. 'tenants', owner)
if entry ~= '' then
  redis.call('HSET', entry, 'fingerprint', fingerprint, 'job', id)
  redis.call('EXPIRE', entry, ARGV[4])
end
backlog(1)
for_pictures(offer, '+inf')
move('queued', 'waiting')
return {'new', id, redis.call('HGETALL', job), redis.call('ZRANK', queue(), id)}
"""

CLAIM = """
-- ARGV: id, owner, lease seconds, most stale attempts, ttl, errors ; returns a fence or why not
local owner, lease, most, ttl, lost, late = ARGV[2], ARGV[3], tonumber(ARGV[4]), unpack(ARGV, 5)
local state = get('state')
if not state then return 'missing' end
if terminal(state) then return 'finished' end
-- a respawned child of the same parent may take its own job over; nobody else before the lease ends
local expiry = redis.call('ZSCORE', leases, id)
if state == 'running' and expiry and tonumber(expiry) > now and get('owner') ~= owner then return 'leased' end
if get('cancel_requested') then finish('canceled', ttl) return 'canceled' end
if overdue() then
  set('error', late)
  finish('failed', ttl)
  return 'overdue'
end
-- counted before any work is done, so that a job that kills its worker cannot go round for ever
if tonumber(get('stale_attempts')) >= most then
  set('error', lost)
  redis.call('ZADD', dead, text(now), id)
  finish('failed', ttl)
  return 'poisoned'
end
-- a client with as many running jobs as it may have: the sweeper rings again soon
local limit = tonumber(get('max_running') or 0)
if state == 'queued' and limit > 0 and redis.call('SCARD', prefix .. 'running:of:' .. tenant()) >= limit then
  set('rung_at', text(now))
  return 'quota'
end
if state == 'running' then set('stopped_by', 'lost') end
redis.call('HINCRBY', job, 'attempt', 1)
redis.call('HINCRBY', job, 'stale_attempts', 1)
dequeue()
extend(lease)
redis.call('HSETNX', job, 'started_at', text(now))
set('owner', owner)
redis.call('HSET', holders, owner, id)
local fence = redis.call('HINCRBY', job, 'fence', 1)
move('running', 'loading')
if fence == 1 then notify('job.started') end
return fence
"""

HEARTBEAT = """
-- ARGV: id, fence, lease ; returns what the worker shall do
if not holds(ARGV[2]) then return 'lost' end
extend(ARGV[3])
return word()
"""

ENTER = """
-- ARGV: id, fence, phase
if not holds(ARGV[2]) then return 0 end
move('running', ARGV[3])
return 1
"""

STEP = """
-- ARGV: id, fence, lease, step, progress, event, checkpoint, preview file ; as heartbeat, and a finished step
local fence, lease, step, progress, event, saved, preview = unpack(ARGV, 2)
if not holds(fence) then return 'lost' end
extend(lease)
redis.call('HSET', checkpoint, tonumber(step) % 2, saved)
if preview ~= '' then redis.call('HSET', previews, step, preview) end
set('progress', progress, 'stale_attempts', 0)
emit('progress', event)
if now - tonumber(get('notified_at') or 0) >= 0.5 then
  set('notified_at', text(now))
  notify('job.progress')
end
return word()
"""

FINISH = """
-- ARGV: id, fence, state, ttl, field, value, ... ; the one write that ends a job
if not holds(ARGV[2]) then return 0 end
set(unpack(ARGV, 5))
finish(ARGV[3], ARGV[4])
return 1
"""

RELEASE = """
-- ARGV: id, fence ; a drained worker hands its job back, which does not count against the job
if not holds(ARGV[2]) then return 0 end
redis.call('HINCRBY', job, 'stale_attempts', -math.min(1, tonumber(get('stale_attempts'))))
set('stopped_by', 'drained')
requeue()
return 1
"""

EXPIRE = """
-- ARGV: id ; the lease ended without a word from the worker
local expiry = redis.call('ZSCORE', leases, id)
if not expiry or tonumber(expiry) > now then return 0 end
if get('state') ~= 'running' then redis.call('ZREM', leases, id) return 0 end
set('stopped_by', 'lost')
requeue()
return 1
"""

OVERDUE = """
-- ARGV: id, ttl, error ; ends a waiting job whose deadline has passed; a running one hears of it from its heartbeat
local state = get('state')
if not state or terminal(state) then redis.call('ZREM', deadlines, id) return 0 end
if state ~= 'queued' or not overdue() then return 0 end
set('error', ARGV[3])
finish('failed', ARGV[2])
return 1
"""

REQUEUE = """
-- ARGV: id ; gives a given-up job another life, from its last checkpoint on; returns what happened
local state = get('state')
if not state then redis.call('ZREM', dead, id) return 'missing' end
if not redis.call('ZSCORE', dead, id) then return state end
if now >= tonumber(get('expires_at')) then return 'expired' end
redis.call('ZREM', dead, id)
redis.call('HDEL', job, 'error', 'finished_at', 'expires_at', 'deadline')
for _, key in ipairs({job, events, checkpoint, previews, webhooks}) do redis.call('PERSIST', key) end
-- the end was not the end: whoever reads the history must not stop there
local last = redis.call('XREVRANGE', events, '+', '-', 'COUNT', 1)[1]
if last then redis.call('XDEL', events, last[1]) end
set('stale_attempts', 0)
backlog(1)
for_pictures(offer, '+inf')
requeue()
return 'queued'
"""

CANCEL = """
-- ARGV: id, ttl ; returns the state the job had
local state = get('state')
if not state then return 'missing' end
if state == 'queued' then finish('canceled', ARGV[2]) end
if state == 'running' and not get('cancel_requested') then
  set('cancel_requested', '1')
  move('running', 'canceling')
end
return state
"""

DELETE = """
-- ARGV: id ; a running job must be canceled first
local state = get('state')
if not state then return 'missing' end
if state == 'running' then return 'running' end
if state == 'queued' then backlog(-1) end
count('deleted')
for_pictures(withdraw)
tally(-1)
dequeue()
for _, key in ipairs({index(), deadlines, dead}) do redis.call('ZREM', key, id) end
redis.call('DEL', job, events, checkpoint, previews, webhooks)
return 'deleted'
"""

RING_AGAIN = """
-- ARGV: id, seconds ; true when the job has waited this long since it was last rung for
if get('state') ~= 'queued' or now - tonumber(get('rung_at')) < tonumber(ARGV[2]) then return 0 end
set('rung_at', text(now))
return 1
"""

KEEP = """
-- ARGV: upload's id, tenant, file, seconds, most of the tenant's ; returns the seconds until there is room, 0 when it is kept
local own, expiry = prefix .. 'uploads:' .. ARGV[2], text(now + tonumber(ARGV[4]))
redis.call('ZREMRANGEBYSCORE', own, '-inf', text(now))
if redis.call('ZCARD', own) >= tonumber(ARGV[5]) then return math.ceil(tonumber(redis.call('ZRANGE', own, 0, 0, 'WITHSCORES')[2]) - now) end
redis.call('ZADD', own, expiry, id)
redis.call('EXPIRE', own, ARGV[4])
redis.call('SET', prefix .. 'upload:' .. id, '1', 'EX', ARGV[4])
offer(ARGV[2], ARGV[3], expiry)
return 0
"""

LEAD = """
-- ARGV: duty, milliseconds ; true for one caller in that time
return redis.call('SET', prefix .. 'leader:' .. id, '1', 'NX', 'PX', ARGV[2]) and 1 or 0
"""

SCRIPTS = {
    # a full server takes no new jobs and pictures, but those it has go on: they are what makes room
    name: ("" if name in ("SUBMIT", "KEEP") else "#!lua flags=allow-oom\n") + PRELUDE + source
    for name, source in list(vars().items())
    if name.isupper() and not name.startswith("_") and name != "PRELUDE"
}
"""The whole source of each script, by name."""
