-- ARGV: id ; seconds since files without a record were first seen under this id
local orphans = prefix .. 'orphans'
redis.call('ZADD', orphans, 'NX', text(now), id)
redis.call('EXPIRE', orphans, 604800)
return text(now - tonumber(redis.call('ZSCORE', orphans, id)))
