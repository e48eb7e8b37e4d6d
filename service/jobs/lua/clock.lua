-- The store's clock as every script reads it: it never goes back. When the server's own clock is set back, this one
-- continues from where it was at half speed until the server's has caught up, so leases, pauses and leaderships that
-- were granted before still end, after at most twice their time. A step of less than a second is not noticed.
-- Key: PREFIXclock, a hash: `server` what TIME said last, `shown` what this clock said then.
local function tick(prefix)
  local key, time = prefix .. 'clock', redis.call('TIME')
  local server = tonumber(time[1]) + tonumber(time[2]) / 1e6
  local seen = redis.call('HMGET', key, 'server', 'shown')
  local last, shown = tonumber(seen[1] or server), tonumber(seen[2] or server)
  local passed, ahead = math.max(0, server - last), shown - last > 1e-3
  local now = ahead and math.max(server, shown + passed / 2) or passed > 0 and server or shown
  if ahead or server < last or passed > 1 or not seen[1] then
    redis.call('HSET', key, 'server', string.format('%.6f', server), 'shown', string.format('%.6f', now))
  end
  return now
end

