-- ARGV: bucket, tokens per second, capacity ; takes one token; returns whether there was one, and how many are left
local key, rate, most = prefix .. 'bucket:' .. id, tonumber(ARGV[2]), tonumber(ARGV[3])
local before = redis.call('HMGET', key, 'tokens', 'at')
local tokens = math.min(most, tonumber(before[1] or most) + rate * math.max(0, now - tonumber(before[2] or now)))
local allowed = tokens >= 1
if allowed then tokens = tokens - 1 end
redis.call('HSET', key, 'tokens', text(tokens), 'at', text(now))
redis.call('EXPIRE', key, math.ceil(2 * most / rate) + 1)
return {allowed and 1 or 0, text(tokens)}
