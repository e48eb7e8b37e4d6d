-- ARGV: id, fence, state, ttl, field, value, ... ; ends a running job
if not holds(ARGV[2]) then return 0 end
set(unpack(ARGV, 5))
finish(ARGV[3], ARGV[4])
return 1
