-- part of every transition: puts a message about the job into the outbox, if its client wants to be told
local MOST_MESSAGES = 1000 -- of one job; above it progress is no longer told, the end always
local function notify(kind)
  local wish = get('webhook')
  if not wish or kind == 'job.progress' and redis.call('LLEN', webhooks) >= MOST_MESSAGES then return end
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
