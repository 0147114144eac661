-- Ends a lease without a value and leaves the outcome in its place, if the lease is still the load's own.
-- KEYS: lease, value
-- ARGV: token .. number, record, ms to keep it or 0, channel, message, '1' to remove the value
-- Returns 1 if it was
local lease = redis.call('MGET', KEYS[1])[1]
if not lease or string.sub(lease, 2) ~= ARGV[1] then
  return 0
end
if ARGV[6] == '1' then
  redis.call('DEL', KEYS[2])
end
local kept = tonumber(ARGV[3]) > 0 and redis.pcall('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if not kept or kept.err then -- out of memory: then the message alone tells
  redis.call('DEL', KEYS[1])
end
if string.sub(lease, 1, 1) == '+' then
  redis.call('PUBLISH', ARGV[4], ARGV[5])
end
return 1
