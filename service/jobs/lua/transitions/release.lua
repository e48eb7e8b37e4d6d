-- ARGV: id, fence ; a drained worker hands its job back, which does not count against the job
if not holds(ARGV[2]) then return 0 end
redis.call('HINCRBY', job, 'stale_attempts', -math.min(1, tonumber(get('stale_attempts'))))
set('stopped_by', 'drained')
requeue()
return 1
