-- Gives back a lock or a place in the line, and hands a free lock to the next owner in the line.
-- KEYS: the lock, the line, seen, the key "given" of the owner, the fence (see acquire.lua)
-- ARGV: the owner, '1' for first come first served, '1' if PUBLISH returns how many subscribers it
--       has reached, the ms in which this request may be sent again, the ms to remember the fencing
--       token
-- Returns 1 if the owner had the lock, else 0
--
-- The script gives the lock to the next owner, and sends it a message with the fencing token. So a
-- hand-over costs no request. The next owner has the lock until one lease after its last request,
-- which is as long as it counts as present. It knows when it sent that request.
--
-- Redis does nothing else while this runs. Mostly Redis was idle before, and then each kind of
-- command costs 5 to 10 us. So the script uses as few commands as possible.
local owner = ARGV[1]
local mine, token = 0, nil
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #owner + 1) == owner .. ' ' then
  -- The owner has the lock, so it has no place in the line any more. If memory is full, the key
  -- "given" is not set. Then a repeated Unlock may return that the lock was lost.
  redis.pcall('SET', KEYS[4], '', 'PX', ARGV[4])
  mine, token = 1, string.sub(held, #owner + 2)
elseif redis.call('GET', KEYS[4]) then
  -- The first try was carried out, and its answer was lost. It has handed the lock over already.
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
-- told is true if the script itself gives the lock to the next owner, with a message. It doesn't if
-- PUBLISH doesn't count the subscribers, or if there is no larger token. Then it wakes the next
-- owner, which sends its request. That request gets the error FENCE if the last token is 2^53-1. A
-- larger number in the fence was forged, and that request ignores it.
local told = ARGV[3] == '1' and last < 2^53 - 1
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
  if left > 1000 * ARGV[5] then -- no lease is as long as this, so it was set by hand
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
  elseif left > 0 then -- the message wakes the next owner, which then asks for the lock
    redis.call('PUBLISH', channel, who)
  end
  if left > 0 and ARGV[2] == '1' then
    -- With first come first served, the next owner stays first in the line until it has the lock,
    -- or until it doesn't count as present any more.
    redis.call('ZADD', KEYS[2], place, who)
    break
  end
  redis.call('HDEL', KEYS[3], who) -- if the owner is still alive, it asks for its old place
  if left > 0 and not told then
    break
  end
end
redis.call('DEL', KEYS[1])
return mine
