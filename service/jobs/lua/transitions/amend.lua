-- ARGV: delivery, 'more' or 'over', field, value, ... ; updates a delivery, unless it was deleted with its job
local delivery, over = prefix .. 'webhook:' .. id, ARGV[2] == 'over'
local exists = redis.call('EXISTS', delivery) == 1
if exists then redis.call('HSET', delivery, unpack(ARGV, 3)) end
if exists and over then redis.call('HDEL', delivery, 'next_attempt_at') end
if over or not exists then redis.call('ZREM', prefix .. 'webhooks:due', id) end
return exists and 1 or 0
