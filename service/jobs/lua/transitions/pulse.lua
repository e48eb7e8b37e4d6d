-- ARGV: id, fence, lease, event ; as heartbeat, with progress inside a step
if not holds(ARGV[2]) then return 'lost' end
extend(ARGV[3])
emit('inner', ARGV[4])
return word()
