-- ARGV: maximum number, lease seconds ; takes due deliveries under a lease
local due = prefix .. 'webhooks:due'
local taken = redis.call('ZRANGEBYSCORE', due, '-inf', text(now), 'LIMIT', 0, ARGV[1])
for _, delivery in ipairs(taken) do redis.call('ZADD', due, text(now + tonumber(ARGV[2])), delivery) end
return taken
