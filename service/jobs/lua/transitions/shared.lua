-- ARGV: id, digest of a link's token ; returns the end of the link, '' if there is no such link
local ends = tonumber(redis.call('ZSCORE', links, ARGV[2]) or 0)
return ends > now and text(ends) or ''
