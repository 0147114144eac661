-- Asks for a lock, and for a place among those who wait for it.
-- KEYS: lock, line, seen, fence
-- ARGV: owner, lease in ms, which is also when somebody who waits and isn't heard of counts as gone, '1' if the asker waits,
--       its place or '', '1' for first come first served, ms to remember the fencing token
-- Returns the token if it is granted; otherwise ms left of the lock or of somebody else's turn (below 0: it has no end),
-- place, the last token that anybody was given. The error FENCE and a key says that there are no more tokens.
--
-- The lock is its owner, ' ' and its fencing token. An owner is a process, '/' and a number; the process has a channel.
-- The line is a sorted set of the owners that wait, by their place. seen has until when each of them counts as there.
-- A channel's name begins as all keys do, up to the brace.
local owner = ARGV[1]

local function leave(who)
  if redis.call('ZREM', KEYS[2], who) == 1 then
    redis.call('HDEL', KEYS[3], who)
  end
end

-- counts reports whether one who counts as there until then does so now. An end that no lease has was set by hand.
local function counts(to, now)
  return to and to >= now and to - now <= math.max(1e6 * ARGV[2], 3600e6)
end

-- first is who has waited longest and still counts as there.
local function first(now)
  while true do
    local who = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if not who or counts(tonumber(redis.call('HGET', KEYS[3], who) or 0), now) then
      return who
    end
    leave(who)
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- microseconds fit into a double until the year 2255

local turn
if ARGV[5] == '1' and not redis.call('GET', KEYS[1]) then
  turn = first(now)
end

if not turn or turn == owner then
  -- The clock is larger than what was forgotten, also where a server has come back with an old fence; what is remembered
  -- counts when the clock was set back, unless no clock was ever there.
  local token = string.format('%.0f', now)
  if redis.call('SET', KEYS[1], owner .. ' ' .. token, 'NX', 'PX', ARGV[2]) then
    local before = tonumber(redis.call('SET', KEYS[4], token, 'PX', ARGV[6], 'GET') or 0) or 0
    if before == 2^53 - 1 then -- it may have been given, and a script can't tell the next two numbers apart
      redis.call('SET', KEYS[4], string.format('%.0f', before), 'PX', ARGV[6])
      redis.call('DEL', KEYS[1])
      return redis.error_reply('FENCE ' .. KEYS[4])
    elseif before >= now and before < 2^53 then -- what is larger was never given
      token = string.format('%.0f', before + 1)
      redis.call('SET', KEYS[4], token, 'PX', ARGV[6])
      redis.call('SET', KEYS[1], owner .. ' ' .. token, 'PX', ARGV[2])
    end
    if ARGV[3] == '1' then -- it may have a place, also by a copy of this question whose answer was lost
      leave(owner)
    end
    return token
  end
end

local held, left, last = redis.call('GET', KEYS[1]), nil, nil
if held then
  if string.sub(held, 1, #owner + 1) == owner .. ' ' then -- the first answer was lost
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    leave(owner)
    return string.sub(held, #owner + 2)
  end
  left, last = redis.call('PTTL', KEYS[1]), string.match(held, ' (%d+)$') or ''
  if left == 0 then -- it ends in this millisecond
    left = 1
  end
else
  redis.call('PUBLISH', string.match(KEYS[1], '^[^{]*') .. string.match(turn, '^[^/]*'), turn) -- its message may have been lost
  left = math.floor((redis.call('HGET', KEYS[3], turn) - now) / 1000) + 1
  last = redis.call('GET', KEYS[4]) or ''
end

local place = ARGV[4]
if ARGV[3] == '1' then
  if place == '' then
    local hindmost = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
    place = string.format('%.0f', math.max(now, tonumber(hindmost or 0) + 1))
  end
  redis.call('ZADD', KEYS[2], place, owner)
  redis.call('HSET', KEYS[3], owner, string.format('%.0f', now + ARGV[2] * 1000))
  for i = 2, 3 do
    if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then -- another's time may be longer
      redis.call('PEXPIRE', KEYS[i], ARGV[2])
    end
  end
end
return {left, place, last}
