-- ARGV: prior, terms ; claims the next job: {id, fence}; {} when none may run now; {'more'} when the caller must call again
local prior, terms = ARGV[1], claim_terms()
local function claimed(chosen)
  about(chosen)
  local answer = claim(terms)
  return type(answer) == 'number' and {chosen, answer}, answer
end
-- first the unfinished job of the previous child of the same parent
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
  -- claim() has dequeued a job that it ended; a job whose record has expired is removed here
  elseif redis.call('ZREM', own, head) == 1 then redis.call('ZREM', prefix .. 'waiting:' .. prior, head) end
end
return {'more'}
