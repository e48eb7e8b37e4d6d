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
