-- Gives a lock more time on one master.
-- KEYS: the lock
-- ARGV: the token, the lease in ms
-- Returns who has the lock: mine | other | free
local lock = redis.call('GET', KEYS[1])
if not lock then
  return {'free'}
elseif string.sub(lock, 1, 26) ~= ARGV[1] then
  return {'other'}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'mine'}
