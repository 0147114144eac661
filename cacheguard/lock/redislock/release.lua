-- Gives a lock back, or a place among those who wait, and wakes the next one.
-- KEYS: lock, line, seen, given
-- ARGV: owner, '1' for first come first served, channels' prefix, '1' if PUBLISH says how many it has reached,
--       ms in which this may be sent again
-- Returns 1 if the owner had the lock
local owner = ARGV[1]
local mine = 0
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #owner + 1) == owner .. ' ' then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[4], '', 'PX', ARGV[5])
  mine, held = 1, nil
elseif redis.call('GET', KEYS[4]) then -- the first answer was lost, and the next one is woken
  return 1
end
redis.call('ZREM', KEYS[2], owner)
redis.call('HDEL', KEYS[3], owner)
if held then
  return mine
end

local now
while true do
  local who = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not who then
    return mine
  end
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  local there = tonumber(redis.call('HGET', KEYS[3], who) or 0) >= now
  -- Who is first in order stays so until it has the lock. Otherwise it is told once and asks again for its old place,
  -- so that one who never does holds up nobody.
  if not there or ARGV[2] ~= '1' then
    redis.call('ZREM', KEYS[2], who)
    redis.call('HDEL', KEYS[3], who)
  end
  if there then
    local reached = redis.call('PUBLISH', ARGV[3] .. string.match(who, '^[^/]*'), who)
    if reached > 0 or ARGV[4] ~= '1' or ARGV[2] == '1' then
      return mine
    end
  end
end
