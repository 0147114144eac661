-- Gives a lease up by its token, whatever the number of the grant.
-- KEYS: lease
-- ARGV: token, channel, message
-- Returns 1 if it was there
local lease = redis.call('MGET', KEYS[1])[1]
if not lease or string.sub(lease, 2, 33) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if string.sub(lease, 1, 1) == '+' then
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return 1
