-- Asks for a lock, and for a place in the line of those that wait for it.
-- KEYS: the lock, the line, seen, the fence
-- ARGV: the owner that asks, the lease in ms, '1' if the owner will wait, the owner's place or '',
--       '1' for first come first served, the ms to remember the fencing token
-- Returns the fencing token if the lock is granted. Otherwise it returns three things: the ms left
--         of the lock or of another owner's turn (below 0: the lock has no end), the owner's place,
--         and the last token that was granted. The error FENCE and a key means that there are no
--         more tokens.
--
-- The lock is the name of its owner, a space, and the fencing token. The name of an owner is the
-- name of its process, '/' and a number. The line is a sorted set of the waiting owners, with their
-- places as scores. The hash "seen" has, for each waiting owner, until when it counts as present:
-- until one lease after its last request. The fence is the last fencing token. Each process has a
-- channel, whose name is the part of the keys before the brace, and the name of the process.
local owner = ARGV[1]

local function leave(who)
  if redis.call('ZREM', KEYS[2], who) == 1 then
    redis.call('HDEL', KEYS[3], who)
  end
end

-- counts reports whether an owner that counts as present until the time "to" does so now. A time
-- that is later than the end of any lease was set by hand, and doesn't count.
local function counts(to, now)
  return to and to >= now and to - now <= math.max(1e6 * ARGV[2], 3600e6)
end

-- first returns the owner that has waited longest and still counts as present. It removes the
-- owners before it from the line.
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
  -- Usually the token is the server's clock. It is larger than all earlier tokens, even if the
  -- server has forgotten the last ones. If the clock was set back, the token is the remembered one
  -- plus 1, except if the fence has a number that no token can have.
  local token = string.format('%.0f', now)
  if redis.call('SET', KEYS[1], owner .. ' ' .. token, 'NX', 'PX', ARGV[2]) then
    local before = tonumber(redis.call('SET', KEYS[4], token, 'PX', ARGV[6], 'GET') or 0) or 0
    if before == 2^53 - 1 then
      -- This token may have been granted. There is no larger one, because Lua can't tell the next
      -- two numbers apart.
      redis.call('SET', KEYS[4], string.format('%.0f', before), 'PX', ARGV[6])
      redis.call('DEL', KEYS[1])
      return redis.error_reply('FENCE ' .. KEYS[4])
    elseif before >= now and before < 2^53 then -- larger numbers were never granted as tokens
      token = string.format('%.0f', before + 1)
      redis.call('SET', KEYS[4], token, 'PX', ARGV[6])
      redis.call('SET', KEYS[1], owner .. ' ' .. token, 'PX', ARGV[2])
    end
    if ARGV[3] == '1' then
      -- The owner may have a place in the line, for example from a copy of this request whose
      -- answer was lost.
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
  if left == 0 then -- the lock ends in this millisecond
    left = 1
  end
else
  -- It is another owner's turn. The message that woke it may have been lost, so it is sent again.
  redis.call('PUBLISH', string.match(KEYS[1], '^[^{]*') .. string.match(turn, '^[^/]*'), turn)
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
    if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then -- another owner's lease may be longer
      redis.call('PEXPIRE', KEYS[i], ARGV[2])
    end
  end
end
return {left, place, last}
