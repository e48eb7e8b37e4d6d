-- ARGV: id, ttl ; returns the job's previous state
local state = get('state')
if not state then return 'missing' end
if state == 'queued' then finish('canceled', ARGV[2]) end
if state == 'running' and not get('cancel_requested') then
  set('cancel_requested', '1')
  move('running', 'canceling')
end
return state
