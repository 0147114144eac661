-- Gives a lock back on one master, and sends a message to the waiters.
-- KEYS: the lock
-- ARGV: the token, the channel, the lock's name
-- Returns who had the lock: mine, number of waiters | other | free
local lock = redis.call('GET', KEYS[1])
if not lock then
  return {'free'}
elseif string.sub(lock, 1, 26) ~= ARGV[1] then
  return {'other'}
end
redis.call('DEL', KEYS[1])
local waiting = math.floor((#lock - 26) / 8)
if waiting > 0 then
  -- If the user lacks the right to publish, the waiters get no message and ask from time to time.
  redis.pcall('PUBLISH', ARGV[2], waiting .. ':' .. ARGV[1] .. ARGV[3])
end
return {'mine', waiting}
