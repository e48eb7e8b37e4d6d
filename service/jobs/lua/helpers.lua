-- Shared by all transitions: keys, the clock, reading and writing the record.
local prefix = KEYS[1]
local id, job, events, checkpoint, previews, webhooks, links, current
local known -- values of the fields that 'submit' writes once, read at most once
local fixed = {prior = true, tenant = true, priority = true, estimated_seconds = true, created_at = true}

-- selects the job that every function below operates on
local function about(chosen)
  id, job, known = chosen, prefix .. 'job:' .. chosen, {}
  events, checkpoint, previews, webhooks = job .. ':events', job .. ':checkpoint', job .. ':previews', job .. ':webhooks'
  links, current = job .. ':links', job .. ':current'
end
about(ARGV[1])

local leases, deadlines, dead, holders = prefix .. 'leases', prefix .. 'deadlines', prefix .. 'dead', prefix .. 'holders'
local now = tick(prefix)

local function get(field)
  local value = known[field] or redis.call('HGET', job, field)
  if fixed[field] then known[field] = value end
  return value
end
local function set(...) redis.call('HSET', job, ...) end
local function text(number) return string.format('%.6f', number) end
-- seconds by which a priority advances or delays a job among those of its tenant; bounded, so that no job starves
local head_start = {high = 3600, normal = 0, low = -3600}
local function rank() return text(tonumber(get('created_at')) - (head_start[get('priority')] or 0)) end
local function overdue() local at = get('deadline') return at and now >= tonumber(at) end
local function tenant() return get('tenant') or '' end
local function overlong(longest) return tonumber(longest) > 0 and now - tonumber(get('claimed_at') or now) > tonumber(longest) end
local function queue() return prefix .. 'queue:' .. get('prior') .. ':' .. tenant() end
local function waiting() return prefix .. 'waiting:' .. get('prior') end
local function index() return prefix .. 'jobs:' .. tenant() end
local function terminal(state) return state == 'succeeded' or state == 'failed' or state == 'canceled' end
local function holds(fence) return get('state') == 'running' and get('fence') == fence end
local function extend(lease) redis.call('ZADD', leases, text(now + tonumber(lease)), id) end

-- instruction to the worker
local function word() return get('cancel_requested') and 'cancel' or overdue() and 'deadline' or 'run' end

local function emit(kind, data)
  local version = redis.call('HINCRBY', job, 'version', 1)
  redis.call('XADD', events, 'MAXLEN', '~', 2000, '*', 'type', kind, 'version', version, 'data', data)
end

