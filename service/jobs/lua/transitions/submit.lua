-- ARGV: id, idempotency entry, fingerprint, seconds to remember it, maximum queued jobs, maximum backlog seconds of all and
-- of the tenant, maximum bytes stored, bytes of the inputs, prior, tenant, field, value, ...
-- returns {outcome, id or number}; for a new job also the record and its position in the tenant's queue
local entry, fingerprint, remembered = ARGV[2], ARGV[3], ARGV[4]
local most, longest, own_longest, most_bytes, bytes = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local prior, owner = ARGV[10], ARGV[11]
if redis.call('EXISTS', job) == 1 then return {'known', id} end
if entry ~= '' then
  local before = redis.call('HMGET', entry, 'fingerprint', 'job')
  if before[2] then return {before[1] == fingerprint and 'known' or 'conflict', before[2]} end
end
if most > 0 and redis.call('SCARD', prefix .. 'queued:of:' .. owner) >= most then return {'quota', tostring(most)} end
if most_bytes > 0 and total(owner) + bytes > most_bytes then return {'bytes', tostring(total(owner))} end
local own_behind = tonumber(redis.call('HGET', prefix .. 'backlog:of:' .. owner, prior) or 0) / 1000
if own_longest > 0 and own_behind > own_longest then return {'share', tostring(own_behind)} end
local behind = tonumber(redis.call('GET', prefix .. 'backlog:' .. prior) or 0) / 1000
if longest > 0 and behind > longest then return {'full', tostring(behind)} end
set('id', id, 'prior', prior, 'tenant', owner, unpack(ARGV, 12))
set('attempt', 0, 'stale_attempts', 0, 'fence', 0, 'created_at', text(now), 'announced_at', text(now))
enqueue()
if get('cancel_after_seconds') then
  set('deadline', text(now + tonumber(get('cancel_after_seconds'))))
  redis.call('ZADD', deadlines, get('deadline'), id)
end
redis.call('ZADD', index(), 0, id)
if entry ~= '' then
  redis.call('HSET', entry, 'fingerprint', fingerprint, 'job', id)
  redis.call('EXPIRE', entry, remembered)
end
if get('batch') then
  redis.call('SADD', open_jobs(get('batch')), id, 'request')
  redis.call('EXPIRE', open_jobs(get('batch')), 604800)
end
backlog(1)
occupy(owner, id, bytes)
for_pictures(offer, '+inf')
move('queued', 'waiting')
return {'new', id, redis.call('HGETALL', job), redis.call('ZRANK', queue(), id)}
