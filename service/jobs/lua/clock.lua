-- The store's monotonic clock, read by every script. When the server's clock is set back, this one continues at half
-- speed until the server's clock has caught up. Leases, pauses and leaderships granted before therefore end after at
-- most twice their duration. Steps of less than a second may go undetected.
-- Key: PREFIXclock, a hash: `server` the last TIME, `shown` this clock's value at that moment.
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

