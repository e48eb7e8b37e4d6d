-- ARGV: delivery, seconds, field, value, ... ; makes the delivery due in that many seconds, unless it was deleted with
-- its job
local delivery, due, at = prefix .. 'webhook:' .. id, prefix .. 'webhooks:due', text(now + tonumber(ARGV[2]))
if redis.call('EXISTS', delivery) == 0 then redis.call('ZREM', due, id) return '' end
redis.call('HSET', delivery, 'next_attempt_at', at, unpack(ARGV, 3))
redis.call('ZADD', due, at, id)
return at
