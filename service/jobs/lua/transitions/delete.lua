-- ARGV: id ; a running job must be canceled first
local state = get('state')
if not state then return 'missing' end
if state == 'running' then return 'running' end
if state == 'queued' then backlog(-1) end
count('deleted')
for_pictures(withdraw)
tally(-1)
dequeue()
for _, key in ipairs({index(), deadlines, dead}) do redis.call('ZREM', key, id) end
redis.call('DEL', job, events, checkpoint, previews, webhooks)
return 'deleted'
