-- Start-time fair queueing between tenants over predicted computing seconds, with one schedule per prior.
-- Each started job advances its tenant's virtual time by the predicted duration; the tenant with the smallest virtual
-- time is served next. A tenant that returns after a pause starts at the schedule's clock, so it accumulates no credit.
-- A tenant at its limit of running jobs is parked, i.e. off the schedule, until one of its jobs stops running.
-- Each operation takes O(log n) in jobs and tenants.
local function turns(prior) return prefix .. 'turns:' .. prior end
local function clock_of(prior) return prefix .. 'turns:clock:' .. prior end
local function served(prior) return prefix .. 'turns:served:' .. prior end
local function parked(owner) return prefix .. 'parked:' .. owner end
local function milliseconds(seconds) return math.floor(1000 * tonumber(seconds or 0)) end

local function virtual_time(prior, owner)
  local own = tonumber(redis.call('ZSCORE', served(prior), owner) or 0)
  return math.max(own, tonumber(redis.call('GET', clock_of(prior)) or 0))
end

local function join(prior, owner) redis.call('ZADD', turns(prior), text(virtual_time(prior, owner)), owner) end

-- charges the job's tenant when the job starts (sign 1); refunds it when the job is requeued (sign -1)
local function charge(sign)
  local prior, owner = get('prior'), tenant()
  local start, cost = virtual_time(prior, owner), math.max(1, milliseconds(get('estimated_seconds'))) / 1000
  redis.call('ZADD', served(prior), text(start + sign * cost), owner)
  redis.call('ZADD', turns(prior), 'XX', text(start + sign * cost), owner)
  if sign < 0 then return end
  redis.call('SET', clock_of(prior), text(start))
  redis.call('ZREMRANGEBYSCORE', served(prior), '-inf', text(start))
end

local function park(prior, owner)
  redis.call('ZREM', turns(prior), owner)
  redis.call('SADD', parked(owner), prior)
end

local function unpark(owner)
  for _, prior in ipairs(redis.call('SMEMBERS', parked(owner))) do
    if redis.call('EXISTS', prefix .. 'queue:' .. prior .. ':' .. owner) == 1 then join(prior, owner) end
  end
  redis.call('DEL', parked(owner))
end
