-- ARGV: tenant, sha256 ; jobs and uploads that hold the picture, the one that is kept longest first
return redis.call('ZREVRANGEBYSCORE', prefix .. 'known:' .. id .. ':' .. ARGV[2], '+inf', '(' .. text(now))
