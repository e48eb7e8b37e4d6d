-- ARGV: id, fence, lease, event ; like heartbeat, and emits progress inside a step
if not holds(ARGV[2]) then return 'lost' end
extend(ARGV[3])
emit('inner', ARGV[4])
return word()
