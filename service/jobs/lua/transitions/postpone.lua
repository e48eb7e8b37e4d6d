-- ARGV: delivery, seconds, field, value, ... ; the delivery is due (again) in so many seconds
local at = text(now + tonumber(ARGV[2]))
redis.call('HSET', prefix .. 'webhook:' .. id, 'next_attempt_at', at, unpack(ARGV, 3))
redis.call('ZADD', prefix .. 'webhooks:due', at, id)
return at
