-- Gives up a lease that has this token, whatever the number of its grant.
-- KEYS: the lease, and on a single server the waiters
-- ARGV: the token, the message, the cache's channel, the common channel
-- Returns 1 if the lease was there, else 0
local both = redis.call('MGET', KEYS[1], KEYS[2] or KEYS[1])
local lease = both[1]
if not lease or string.sub(lease, 2, 33) ~= ARGV[1] then
  return 0
end
redis.call('DEL', unpack(KEYS))
wake(string.sub(lease, 1, 1), KEYS[2] and both[2], ARGV[3], ARGV[4], ARGV[2])
return 1
