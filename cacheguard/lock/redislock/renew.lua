-- Gives a lock more time.
-- KEYS: the lock
-- ARGV: the owner, the lease in ms
-- Returns 1 if the owner has the lock, else 0
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
