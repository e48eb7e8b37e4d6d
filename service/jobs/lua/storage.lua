-- Storage per tenant: stored:OWNER holds the bytes of each of its jobs and uploads, and their total (hash).
-- files:due and records:due hold the expiry times of their files and records (sorted sets of 'ID OWNER').
local KEPT = 86400 -- seconds by which a record outlives its files
local function stored(owner) return prefix .. 'stored:' .. owner end
local function total(owner) return tonumber(redis.call('HGET', stored(owner), 'total') or 0) end

local function occupy(owner, holder, bytes)
  if bytes <= 0 then return end
  redis.call('HINCRBY', stored(owner), holder, bytes)
  redis.call('HINCRBY', stored(owner), 'total', bytes)
end

local function vacate(owner, holder)
  local bytes = redis.call('HGET', stored(owner), holder)
  if not bytes then return end
  redis.call('HDEL', stored(owner), holder)
  if redis.call('HINCRBY', stored(owner), 'total', -bytes) <= 0 then redis.call('DEL', stored(owner)) end
end

local function bytes_of(field)
  local sum = 0
  for _, file in pairs(cjson.decode(get(field) or '{}')) do sum = sum + file.bytes end
  return sum
end

local function expire_at(owner, holder, files, record)
  redis.call('ZADD', prefix .. 'files:due', text(files), holder .. ' ' .. owner)
  if record then redis.call('ZADD', prefix .. 'records:due', text(record), holder .. ' ' .. owner) end
end

local function do_not_expire(owner, holder)
  for _, due in ipairs({'files:due', 'records:due'}) do redis.call('ZREM', prefix .. due, holder .. ' ' .. owner) end
end
