-- Ends a lease without a value, and leaves the record of the outcome in its place. It does this
-- only if the lease is still the load's own.
-- KEYS: the lease, the value
-- ARGV: token .. number, the record, the ms to keep the record or 0, the channel, the message, '1'
--       to remove the value
-- Returns 1 if the lease was the load's own, else 0
local lease = redis.call('MGET', KEYS[1])[1]
if not lease or string.sub(lease, 2) ~= ARGV[1] then
  return 0
end
if ARGV[6] == '1' then
  redis.call('DEL', KEYS[2])
end
local kept = tonumber(ARGV[3]) > 0 and redis.pcall('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if not kept or kept.err then -- no record is wanted, or memory is full
  -- Without a record, processes learn of the outcome from the message only.
  redis.call('DEL', KEYS[1])
end
if string.sub(lease, 1, 1) == '+' then
  redis.call('PUBLISH', ARGV[4], ARGV[5])
end
return 1
