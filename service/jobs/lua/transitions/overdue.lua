-- ARGV: id, ttl, error ; fails a queued job whose deadline has passed; a running one stops at its next heartbeat
local state = get('state')
if not state or terminal(state) then redis.call('ZREM', deadlines, id) return 0 end
if state ~= 'queued' or not overdue() then return 0 end
set('error', ARGV[3])
finish('failed', ARGV[2])
return 1
