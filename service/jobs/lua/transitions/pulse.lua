-- ARGV: id, fence, lease, event, preview or '' ; like heartbeat, and emits progress inside a step
if not holds(ARGV[2]) then return 'lost' end
extend(ARGV[3])
if ARGV[5] ~= '' then redis.call('SET', current, ARGV[5], 'EX', 60) end
emit('inner', ARGV[4])
return word()
