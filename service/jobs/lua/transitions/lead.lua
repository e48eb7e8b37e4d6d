-- ARGV: duty, seconds ; true for one caller in that period
local leaders = prefix .. 'leaders'
if now < tonumber(redis.call('HGET', leaders, id) or 0) then return 0 end
redis.call('HSET', leaders, id, text(now + tonumber(ARGV[2])))
return 1
