-- ARGV: id ; ends all links to the job's result; returns how many there were
local ended = redis.call('ZCARD', links)
redis.call('DEL', links)
if redis.call('HDEL', job, 'shared_until') == 1 then redis.call('HINCRBY', job, 'version', 1) end
return ended
