-- ARGV: set of ids by time ; the first hundred whose time has come
return redis.call('ZRANGEBYSCORE', prefix .. id, '-inf', text(now), 'LIMIT', 0, 100)
