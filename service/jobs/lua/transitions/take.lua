-- ARGV: prior, terms ; the job a worker does next: {id, fence}; {} when none may run now, {'more'} when it must ask again
local prior, terms = ARGV[1], claim_terms()
local function claimed(chosen)
  about(chosen)
  local answer = claim(terms)
  return type(answer) == 'number' and {chosen, answer}, answer
end
-- first the job its predecessor in the same parent left
local left = redis.call('HGET', holders, terms.owner)
local found = left and claimed(left)
if found then return found end
for _ = 1, 100 do
  local owner = redis.call('ZRANGE', turns(prior), 0, 0)[1]
  if not owner then return {} end
  local own = prefix .. 'queue:' .. prior .. ':' .. owner
  local head, why = redis.call('ZRANGE', own, 0, 0)[1], nil
  if head then
    found, why = claimed(head)
    if found then return found end
  end
  if not head then redis.call('ZREM', turns(prior), owner)
  elseif why == 'quota' then park(prior, owner)
  -- what the claim ended is off the queue; a record that is gone is taken off here
  elseif redis.call('ZREM', own, head) == 1 then redis.call('ZREM', prefix .. 'waiting:' .. prior, head) end
end
return {'more'}
