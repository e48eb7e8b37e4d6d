-- ARGV: id ; requeues a dead-lettered job, to resume from its last checkpoint; returns the outcome
local state = get('state')
if not state then redis.call('ZREM', dead, id) return 'missing' end
if not redis.call('ZSCORE', dead, id) then return state end
if now >= tonumber(get('expires_at')) then return 'expired' end
redis.call('ZREM', dead, id)
do_not_expire(tenant(), id)
redis.call('HDEL', job, 'error', 'finished_at', 'expires_at', 'deadline', 'claimed_at')
for _, key in ipairs({job, events, checkpoint, previews, webhooks}) do redis.call('PERSIST', key) end
-- remove the 'done' event, or readers of the history would stop there
local last = redis.call('XREVRANGE', events, '+', '-', 'COUNT', 1)[1]
if last then redis.call('XDEL', events, last[1]) end
set('stale_attempts', 0)
backlog(1)
for_pictures(offer, '+inf')
requeue()
return 'queued'
