-- adds a webhook message to the outbox if the job's client subscribed to this kind of event
local MAX_MESSAGES = 1000 -- per job; beyond it, progress messages are dropped but the final one is sent
local function notify(kind)
  local wish = get('webhook')
  if not wish or kind == 'job.progress' and redis.call('LLEN', webhooks) >= MAX_MESSAGES then return end
  wish = cjson.decode(wish)
  for _, event in ipairs(wish.events) do
    if event == kind then
      local delivery = id .. '-' .. get('version')
      local key = prefix .. 'webhook:' .. delivery
      redis.call('HSET', key, 'job', id, 'tenant', tenant(), 'url', wish.url, 'type', kind, 'created_at', text(now), 'state', 'pending')
      redis.call('EXPIRE', key, 604800)
      redis.call('ZADD', prefix .. 'webhooks:due', text(now), delivery)
      redis.call('RPUSH', webhooks, delivery)
    end
  end
end
