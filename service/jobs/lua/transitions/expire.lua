-- ARGV: id, ttl ; the lease ended without a word from the worker; what its client has canceled is over, anything else
-- goes back to the queue
local expiry = redis.call('ZSCORE', leases, id)
if not expiry or tonumber(expiry) > now then return 0 end
if get('state') ~= 'running' then redis.call('ZREM', leases, id) return 0 end
if get('cancel_requested') then finish('canceled', ARGV[2]) return 1 end
set('stopped_by', 'lost')
requeue()
return 1
