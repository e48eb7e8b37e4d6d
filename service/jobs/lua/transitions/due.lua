-- ARGV: sorted set of ids by time ; the first hundred that are due
return redis.call('ZRANGEBYSCORE', prefix .. id, '-inf', text(now), 'LIMIT', 0, 100)
