-- Gives a lease up by its token, whatever the number of the grant.
-- KEYS: lease, and where there are inboxes the waiters
-- ARGV: token, message, the cache's channel, the common one
-- Returns 1 if it was there
local both = redis.call('MGET', KEYS[1], KEYS[2] or KEYS[1])
local lease = both[1]
if not lease or string.sub(lease, 2, 33) ~= ARGV[1] then
  return 0
end
redis.call('DEL', unpack(KEYS))
wake(string.sub(lease, 1, 1), KEYS[2] and both[2], ARGV[3], ARGV[4], ARGV[2])
return 1
