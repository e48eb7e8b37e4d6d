-- ARGV: id, fence ; a draining worker returns its job to the queue; this does not count as a failed attempt
if not holds(ARGV[2]) then return 0 end
redis.call('HINCRBY', job, 'stale_attempts', -math.min(1, tonumber(get('stale_attempts'))))
set('stopped_by', 'drained')
requeue()
return 1
