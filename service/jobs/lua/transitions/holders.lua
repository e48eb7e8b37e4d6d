-- ARGV: tenant, sha256 ; jobs and uploads that hold the picture, latest expiry first
return redis.call('ZREVRANGEBYSCORE', prefix .. 'known:' .. id .. ':' .. ARGV[2], '+inf', '(' .. text(now))
