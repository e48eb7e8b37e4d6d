-- ARGV: name, prior, description, seconds ; registers a worker or renews its entry
redis.call('HSET', prefix .. 'workers', id, ARGV[3])
redis.call('HSET', prefix .. 'workers:last', ARGV[2], ARGV[3])
redis.call('ZADD', prefix .. 'workers:lapse', text(now + tonumber(ARGV[4])), id)
return 1
