-- Gives a lock back, or a place among those who wait, and gives it to the next one.
-- KEYS: lock, line, seen, given, fence
-- ARGV: owner, '1' for first come first served, '1' if PUBLISH says how many it has reached, ms in which this may be sent
--       again, ms to remember the fencing token
-- Returns 1 if the owner had the lock
--
-- Whoever is next gets the lock here, and a message with its token: so a hand-over costs no question. It has the lock for
-- as long as it counts as there, which is one lease from its last question: it knows when that was.
--
-- Others wait while this runs, mostly on a Redis that has done nothing else for a while, where each kind of command costs
-- 5 to 10 us: there are as few as can be.
local owner = ARGV[1]
local mine, token = 0, nil
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #owner + 1) == owner .. ' ' then -- its owner has left the line when it got it
  redis.pcall('SET', KEYS[4], '', 'PX', ARGV[4]) -- out of memory: then an Unlock that asks again may hear that it was lost
  mine, token = 1, string.sub(held, #owner + 2)
elseif redis.call('GET', KEYS[4]) then -- the first answer was lost, and the next one has the lock or is woken
  return 1
else
  redis.call('ZREM', KEYS[2], owner)
  redis.call('HDEL', KEYS[3], owner)
  if held then
    return 0
  end
  token = redis.call('GET', KEYS[5])
end

local last = tonumber(token or 0) or 0
local told = ARGV[3] == '1' and last < 2^53 - 1 -- a script can't count further: whoever asks is told so, or ends a forged one
local now
while true do
  local popped = redis.call('ZPOPMIN', KEYS[2])
  local who, place = popped[1], popped[2]
  if not who then
    break
  end
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  local channel = string.match(KEYS[1], '^[^{]*') .. string.match(who, '^[^/]*')
  local left = math.ceil(((tonumber(redis.call('HGET', KEYS[3], who) or 0) or 0) - now) / 1000)
  if left > 1000 * ARGV[5] then -- set by hand: no lease is that long
    left = 0
  end
  if left > 0 and told then
    local grant = string.format('%.0f', math.max(now, last + 1))
    redis.call('SET', KEYS[1], who .. ' ' .. grant, 'PX', left)
    redis.call('SET', KEYS[5], grant, 'PX', ARGV[5])
    if redis.call('PUBLISH', channel, who .. ' ' .. grant) > 0 then
      redis.call('HDEL', KEYS[3], who)
      return mine
    end
  elseif left > 0 then -- nobody says whether it hears: it is woken, and asks
    redis.call('PUBLISH', channel, who)
  end
  if left > 0 and ARGV[2] == '1' then -- in order it stays first until it has the lock, or doesn't count as there
    redis.call('ZADD', KEYS[2], place, who)
    break
  end
  redis.call('HDEL', KEYS[3], who) -- if it is there, it asks for its old place
  if left > 0 and not told then
    break
  end
end
redis.call('DEL', KEYS[1])
return mine
