-- ARGV: upload's id, tenant, file, seconds, most of the tenant's ; returns the seconds until there is room, 0 when it is kept
local own, expiry = prefix .. 'uploads:' .. ARGV[2], text(now + tonumber(ARGV[4]))
redis.call('ZREMRANGEBYSCORE', own, '-inf', text(now))
if redis.call('ZCARD', own) >= tonumber(ARGV[5]) then return math.ceil(tonumber(redis.call('ZRANGE', own, 0, 0, 'WITHSCORES')[2]) - now) end
redis.call('ZADD', own, expiry, id)
redis.call('EXPIRE', own, ARGV[4])
redis.call('SET', prefix .. 'upload:' .. id, '1', 'EX', ARGV[4])
offer(ARGV[2], ARGV[3], expiry)
return 0
