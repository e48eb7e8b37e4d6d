-- ARGV: name, prior, description, seconds ; enters a worker, or keeps it alive
redis.call('HSET', prefix .. 'workers', id, ARGV[3])
redis.call('HSET', prefix .. 'workers:last', ARGV[2], ARGV[3])
redis.call('ZADD', prefix .. 'workers:lapse', text(now + tonumber(ARGV[4])), id)
return 1
