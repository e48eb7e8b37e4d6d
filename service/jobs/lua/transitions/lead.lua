-- ARGV: duty, milliseconds ; true for one caller in that time
return redis.call('SET', prefix .. 'leader:' .. id, '1', 'NX', 'PX', ARGV[2]) and 1 or 0
