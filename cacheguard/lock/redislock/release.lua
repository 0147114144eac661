-- Gives a lock back, or a place among those who wait, and gives it to the next one.
-- KEYS: lock, line, seen, given, fence
-- ARGV: owner, '1' for first come first served, channels' prefix, '1' if PUBLISH says how many it has reached,
--       ms in which this may be sent again, ms to remember the fencing token
-- Returns 1 if the owner had the lock
--
-- Whoever is next gets the lock here, and a message with its token: so a hand-over costs no question. It has the lock for
-- as long as it counts as there, which is one lease from its last question: it knows when that was.
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

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
while true do
  local who = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not who then
    return mine
  end
  local left = math.ceil(((tonumber(redis.call('HGET', KEYS[3], who) or 0) or 0) - now) / 1000)
  local channel = ARGV[3] .. string.match(who, '^[^/]*')
  if left > 0 and ARGV[4] ~= '1' then -- nobody says whether it hears: it is woken, and asks
    if ARGV[2] ~= '1' then -- it asks for its old place; in order it stays first until it has the lock
      redis.call('ZREM', KEYS[2], who)
      redis.call('HDEL', KEYS[3], who)
    end
    redis.call('PUBLISH', channel, who)
    return mine
  end
  if left > 0 then
    local token = string.format('%.0f', math.max(now, (tonumber(redis.call('GET', KEYS[5]) or 0) or 0) + 1))
    redis.call('SET', KEYS[1], who .. ' ' .. token, 'PX', left)
    redis.call('SET', KEYS[5], token, 'PX', ARGV[6])
    local reached = redis.call('PUBLISH', channel, who .. ' ' .. token)
    if reached == 0 then -- its process is gone, or can't be told
      redis.call('DEL', KEYS[1])
      if ARGV[2] == '1' then -- in order it stays first until it doesn't count as there
        return mine
      end
    end
    redis.call('ZREM', KEYS[2], who)
    redis.call('HDEL', KEYS[3], who)
    if reached > 0 then
      return mine
    end
  else
    redis.call('ZREM', KEYS[2], who)
    redis.call('HDEL', KEYS[3], who)
  end
end
