-- ARGV: id, fence, lease, step, progress, event, checkpoint, preview file and its bytes ; like heartbeat, and records a
-- finished step
local fence, lease, step, progress, event, saved, preview, bytes = unpack(ARGV, 2)
if not holds(fence) then return 'lost' end
extend(lease)
redis.call('DEL', current)
if preview ~= '' then
  redis.call('HSET', previews, step, preview)
  occupy(tenant(), id, tonumber(bytes))
end
set('progress', progress)
if saved ~= '' then
  redis.call('HSET', checkpoint, tonumber(step) % 2, saved)
  set('stale_attempts', 0)
end
emit('progress', event)
if now - tonumber(get('notified_at') or 0) >= 0.5 then
  set('notified_at', text(now))
  notify('job.progress')
end
return word()
