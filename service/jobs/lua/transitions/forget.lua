-- ARGV: '', batch size ; subtracts expired files from storage totals, and removes expired records from the indexes
local function over(due, forget)
  local members = redis.call('ZRANGEBYSCORE', prefix .. due, '-inf', text(now), 'LIMIT', 0, ARGV[2])
  for _, member in ipairs(members) do
    forget(string.match(member, '^(%S+) (.*)$'))
    redis.call('ZREM', prefix .. due, member)
  end
  return #members
end
return over('files:due', function(holder, owner) vacate(owner, holder) end)
  + over('records:due', function(holder, owner)
    redis.call('ZREM', prefix .. 'jobs:' .. owner, holder)
    redis.call('ZREM', dead, holder)
  end)
