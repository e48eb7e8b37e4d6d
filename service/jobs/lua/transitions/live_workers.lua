-- ARGV: empty ; descriptions of the live workers; expired entries are removed
local lapse, described = prefix .. 'workers:lapse', prefix .. 'workers'
for _, name in ipairs(redis.call('ZRANGEBYSCORE', lapse, '-inf', text(now))) do
  redis.call('ZREM', lapse, name)
  redis.call('HDEL', described, name)
end
local names = redis.call('ZRANGE', lapse, 0, -1)
return #names > 0 and redis.call('HMGET', described, unpack(names)) or {}
