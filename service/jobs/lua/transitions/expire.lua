-- ARGV: id ; the lease ended without a word from the worker
local expiry = redis.call('ZSCORE', leases, id)
if not expiry or tonumber(expiry) > now then return 0 end
if get('state') ~= 'running' then redis.call('ZREM', leases, id) return 0 end
set('stopped_by', 'lost')
requeue()
return 1
