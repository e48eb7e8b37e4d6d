-- ARGV: id, fence ; a draining worker returns its job to the queue; this does not count as a failed attempt
if not holds(ARGV[2]) then return 0 end
if tonumber(get('stale_attempts')) > 0 then redis.call('HINCRBY', job, 'stale_attempts', -1) end
set('stopped_by', 'drained')
requeue()
return 1
