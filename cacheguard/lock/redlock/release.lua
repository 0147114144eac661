-- Gives a lock back on one master, and tells those who wait.
-- KEYS: lock
-- ARGV: token, channel, name
-- Returns mine, how many wait | other | free: what it was until now
local lock = redis.call('GET', KEYS[1])
if not lock then
  return {'free'}
elseif string.sub(lock, 1, 26) ~= ARGV[1] then
  return {'other'}
end
redis.call('DEL', KEYS[1])
local waiting = math.floor((#lock - 26) / 8)
if waiting > 0 then
  redis.pcall('PUBLISH', ARGV[2], waiting .. ':' .. ARGV[1] .. ARGV[3]) -- without the right to: they ask from time to time
end
return {'mine', waiting}
