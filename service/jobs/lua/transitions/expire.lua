-- ARGV: id, maximum seconds of an attempt, ttl, error ; handles a running job whose lease has expired: ends it if it was
-- to be canceled or has exceeded its time limit, else requeues it
local expiry = redis.call('ZSCORE', leases, id)
if not expiry or tonumber(expiry) > now then return 0 end
if get('state') ~= 'running' then redis.call('ZREM', leases, id) return 0 end
if get('cancel_requested') then finish('canceled', ARGV[3]) return 1 end
if overlong(ARGV[2]) then
  set('error', ARGV[4])
  finish('failed', ARGV[3])
  return 1
end
set('stopped_by', 'lost')
requeue()
return 1
