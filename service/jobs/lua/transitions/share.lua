-- ARGV: id, digest of the link's token, seconds, maximum links ; makes a link to a result, which ends with its files
-- returns {'shared', end of the link}, {'full', seconds until a link ends}, or {the job's state or 'expired', '0'}
local state, expiry = get('state') or 'missing', tonumber(get('expires_at') or 0)
if state ~= 'succeeded' then return {state, '0'} end
if expiry <= now then return {'expired', '0'} end
redis.call('ZREMRANGEBYSCORE', links, '-inf', text(now))
if redis.call('ZCARD', links) >= tonumber(ARGV[4]) then
  return {'full', text(tonumber(redis.call('ZRANGE', links, 0, 0, 'WITHSCORES')[2]) - now)}
end
local ends = text(math.min(now + tonumber(ARGV[3]), expiry))
redis.call('ZADD', links, ends, ARGV[2])
redis.call('EXPIRE', links, redis.call('TTL', job))
set('shared_until', text(tonumber(redis.call('ZRANGE', links, -1, -1, 'WITHSCORES')[2])))
redis.call('HINCRBY', job, 'version', 1)
return {'shared', ends}
