-- ARGV: id ; a running job must be canceled first
local state = get('state')
if not state then return 'missing' end
if state == 'running' then return 'running' end
if state == 'queued' then backlog(-1) end
if get('batch') then redis.call('SREM', open_jobs(get('batch')), id) end
count('deleted')
for_pictures(withdraw)
tally(-1)
dequeue()
vacate(tenant(), id)
do_not_expire(tenant(), id)
for _, key in ipairs({index(), deadlines, dead}) do redis.call('ZREM', key, id) end
for _, delivery in ipairs(redis.call('LRANGE', webhooks, 0, -1)) do
  redis.call('DEL', prefix .. 'webhook:' .. delivery)
  redis.call('ZREM', prefix .. 'webhooks:due', delivery)
end
redis.call('DEL', job, events, checkpoint, previews, webhooks, links, current)
return 'deleted'
