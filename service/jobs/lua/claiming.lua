-- Claims a job, either by its id or as the next one of a prior.
-- terms: owner, lease seconds, maximum stale attempts, maximum seconds of an attempt, ttl, errors 'lost', 'late' and 'long'
local function claim(terms)
  local state = get('state')
  if not state then return 'missing' end
  if terminal(state) then return 'finished' end
  -- a respawned child of the same parent may resume its own job; other workers must wait for the lease to expire
  local expiry = redis.call('ZSCORE', leases, id)
  if state == 'running' and expiry and tonumber(expiry) > now and get('owner') ~= terms.owner then return 'leased' end
  if get('cancel_requested') then finish('canceled', terms.ttl) return 'canceled' end
  local function give_up(word, error)
    set('error', error)
    finish('failed', terms.ttl)
    return word
  end
  if overdue() then return give_up('overdue', terms.late) end
  if state == 'running' and overlong(terms.longest) then return give_up('overlong', terms.long) end
  -- counted before any work is done, so that a job that crashes its worker is not retried forever
  if tonumber(get('stale_attempts')) >= tonumber(terms.most) then
    redis.call('ZADD', dead, text(now), id)
    return give_up('poisoned', terms.lost)
  end
  local limit = tonumber(get('max_running') or 0)
  if state == 'queued' and limit > 0 and redis.call('SCARD', prefix .. 'running:of:' .. tenant()) >= limit then
    set('announced_at', text(now))
    return 'quota'
  end
  if state == 'running' then set('stopped_by', 'lost') else charge(1) end
  redis.call('HINCRBY', job, 'attempt', 1)
  redis.call('HINCRBY', job, 'stale_attempts', 1)
  dequeue()
  extend(terms.lease)
  redis.call('HSETNX', job, 'started_at', text(now))
  set('owner', terms.owner, 'claimed_at', text(now))
  redis.call('HSET', holders, terms.owner, id)
  local fence = redis.call('HINCRBY', job, 'fence', 1)
  move('running', 'loading')
  if fence == 1 then notify('job.started') end
  return fence
end

local function claim_terms()
  local owner, lease, most, longest, ttl, lost, late, long = unpack(ARGV, 2)
  return {owner = owner, lease = lease, most = most, longest = longest, ttl = ttl, lost = lost, late = late, long = long}
end
