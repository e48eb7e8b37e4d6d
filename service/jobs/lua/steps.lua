-- Building blocks of the transitions.
-- updates the tenant's jobs by state, for its quotas; a job that stops running unparks the tenant
local function count(state)
  for _, each in ipairs({'queued', 'running'}) do
    local changed = redis.call(each == state and 'SADD' or 'SREM', prefix .. each .. ':of:' .. tenant(), id)
    if each == 'running' and state ~= 'running' and changed == 1 then unpark(tenant()) end
  end
end

-- adds (sign 1) or subtracts (sign -1) the job's predicted time from the backlog of the prior and of the tenant; in whole
-- milliseconds, so that additions and subtractions cancel exactly
local function backlog(sign)
  local own, ms = prefix .. 'backlog:of:' .. tenant(), string.format('%d', sign * milliseconds(get('estimated_seconds')))
  if redis.call('HINCRBY', own, get('prior'), ms) == 0 then redis.call('HDEL', own, get('prior')) end
  return redis.call('INCRBY', prefix .. 'backlog:' .. get('prior'), ms)
end

-- counts unfinished jobs by state, prior and priority
local function tally(change)
  local state = get('state')
  if state == 'queued' or state == 'running' then
    redis.call('HINCRBY', prefix .. 'tally', state .. ' ' .. get('prior') .. ' ' .. (get('priority') or 'normal'), change)
  end
end

local function become(state)
  tally(-1)
  set('state', state)
  tally(1)
end

local function enqueue()
  redis.call('ZADD', queue(), rank(), id)
  redis.call('ZADD', waiting(), get('created_at'), id)
  join(get('prior'), tenant())
end

local function dequeue()
  redis.call('ZREM', queue(), id)
  redis.call('ZREM', waiting(), id)
  if redis.call('EXISTS', queue()) == 0 then redis.call('ZREM', turns(get('prior')), tenant()) end
end

local function move(state, phase)
  become(state)
  set('phase', phase)
  count(state)
  emit('status', cjson.encode({state = state, phase = phase, attempt = tonumber(get('attempt'))}))
end

-- removes the job's lease and its worker's entry
local function release_lease()
  redis.call('ZREM', leases, id)
  local owner = get('owner')
  if owner and redis.call('HGET', holders, owner) == id then redis.call('HDEL', holders, owner) end
end

-- clients may refer to a picture by its content hash while a job or upload holds it: known:OWNER:SHA256 lists the
-- holders by expiry ('+inf' for unfinished jobs), limited to the 16 that expire last
local function known_as(owner, file) return prefix .. 'known:' .. owner .. ':' .. string.match(file, '^%x+') end

local function offer(owner, file, expiry)
  local known = known_as(owner, file)
  redis.call('ZREMRANGEBYSCORE', known, '-inf', text(now))
  redis.call('ZADD', known, expiry, id)
  redis.call('ZREMRANGEBYRANK', known, 0, -17)
  local last = redis.call('ZRANGE', known, -1, -1, 'WITHSCORES')[2]
  if last == 'inf' then redis.call('PERSIST', known) else redis.call('EXPIREAT', known, math.ceil(tonumber(last))) end
end

local function for_pictures(what, ...)
  for _, field in ipairs({'inputs', 'artifacts'}) do
    for _, file in pairs(cjson.decode(get(field) or '{}')) do
      if file.media_type == 'image/png' then what(tenant(), file.file, ...) end
    end
  end
end

local function withdraw(owner, file) redis.call('ZREM', known_as(owner, file), id) end

local function requeue()
  release_lease()
  if get('state') == 'running' then charge(-1) end
  enqueue()
  set('announced_at', text(now))
  move('queued', 'preempted')
end

-- set of a batch's unfinished jobs, and 'request' while the batch is being submitted
local function open_jobs(batch) return prefix .. 'batch:' .. batch .. ':open' end

-- takes the job, or the request, off its batch; the last one to leave reports the batch
local function leave_batch(member)
  local batch = get('batch')
  if not batch then return end
  if redis.call('SREM', open_jobs(batch), member) == 0 or redis.call('EXISTS', open_jobs(batch)) == 1 then return end
  redis.call('HINCRBY', job, 'version', 1) -- it is part of the message's id
  notify('batch.completed')
end

local function finish(state, ttl)
  release_lease()
  dequeue()
  redis.call('ZREM', deadlines, id)
  if not redis.call('ZSCORE', dead, id) then redis.call('DEL', checkpoint) end
  redis.call('HDEL', job, 'phase')
  redis.call('DEL', current)
  count(state)
  backlog(-1)
  become(state)
  redis.call('HINCRBY', prefix .. 'ended', get('prior') .. ' ' .. get('task') .. ' ' .. state, 1)
  set('finished_at', text(now), 'expires_at', text(now + tonumber(ttl)))
  for_pictures(offer, text(now + tonumber(ttl)))
  occupy(tenant(), id, bytes_of('artifacts'))
  expire_at(tenant(), id, now + tonumber(ttl), now + tonumber(ttl) + KEPT)
  emit('done', cjson.encode({state = state}))
  notify('job.completed')
  leave_batch(id)
  -- the record outlives its artifacts, so that the API answers 410 rather than 404
  for _, key in ipairs({job, events, checkpoint, previews, webhooks}) do redis.call('EXPIRE', key, tonumber(ttl) + KEPT) end
end
