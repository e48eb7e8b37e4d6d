-- ARGV: upload's id, tenant, file, seconds, its bytes, maximum uploads, maximum bytes
-- returns {'kept'}, {'number', seconds until an upload expires} or {'bytes', bytes stored}
local owner, file, seconds, bytes = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local own, expiry = prefix .. 'uploads:' .. owner, text(now + tonumber(seconds))
redis.call('ZREMRANGEBYSCORE', own, '-inf', text(now))
if redis.call('ZCARD', own) >= tonumber(ARGV[6]) then
  return {'number', math.ceil(tonumber(redis.call('ZRANGE', own, 0, 0, 'WITHSCORES')[2]) - now)}
end
if tonumber(ARGV[7]) > 0 and total(owner) + bytes > tonumber(ARGV[7]) then return {'bytes', total(owner)} end
redis.call('ZADD', own, expiry, id)
redis.call('EXPIRE', own, seconds)
redis.call('SET', prefix .. 'upload:' .. id, '1', 'EX', seconds)
offer(owner, file, expiry)
occupy(owner, id, bytes)
expire_at(owner, id, now + tonumber(seconds))
return {'kept'}
