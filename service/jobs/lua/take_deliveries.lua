-- KEYS: due ; ARGV: most, lease seconds
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local taken = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now), 'LIMIT', 0, ARGV[1])
for _, delivery in ipairs(taken) do redis.call('ZADD', KEYS[1], string.format('%.6f', now + tonumber(ARGV[2])), delivery) end
return taken
