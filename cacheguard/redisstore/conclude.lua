-- Ends a lease without a value, and leaves the record of the outcome in its place. It does this
-- only if the lease is still the load's own.
-- KEYS: the lease, the value, and on a single server the waiters
-- ARGV: token .. number, the record, the ms to keep the record or 0, '1' to remove the value, the
--       message, the cache's channel, the common channel
-- Returns 1 if the lease was the load's own, else 0
local both = redis.call('MGET', KEYS[1], KEYS[3] or KEYS[1])
local lease, waiters = both[1], KEYS[3] and both[2]
if not lease or string.sub(lease, 2) ~= ARGV[1] then
  return 0
end
if ARGV[4] == '1' then
  redis.call('DEL', KEYS[2])
end
if waiters then
  redis.call('DEL', KEYS[3])
end
local kept = tonumber(ARGV[3]) > 0 and redis.pcall('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if not kept or kept.err then -- no record is wanted, or memory is full
  -- Without a record, processes learn of the outcome from the message only.
  redis.call('DEL', KEYS[1])
end
wake(string.sub(lease, 1, 1), waiters, ARGV[6], ARGV[7], ARGV[5])
return 1
