-- Asks for the right to load a key, with the double check inside.
-- KEYS: value, lease, and on a single server the generations of the cache, that of the whole of it, and the waiters
-- ARGV: token, lease time in ms, id of the value that can't be used or '', awaited load or '', how the asker is told when he waits ('':
-- he doesn't, '+': on the common channel, else his inbox), the cache's channel, how many ms longer the waiters stay, and on a single
-- server the tags that a value may have
-- Returns granted, number, failures in a row before, and if the value is still the one that was seen, generations of the cache and of
--       the tags, or 1
--       | held, holder, ms left | value, frame (all left out if it is large), generations
--       of the cache and of the tags
--       | outcome, load, ms left of the back-off, kind, payload
--
-- A lease is a mark ('+' somebody waits on the common channel, else '-'), the token in 32 hex digits and the number of the grant in 16.
-- If the digits have capitals its holder looks at the waiters when he ends it, else at the mark alone.
-- In its place may stand the outcome of the last load:
-- '!', kind, load, ':', ms kept, ':', ms of back-off, ':', failures in a row, ':', payload.
-- The waiters are '*' for all processes that have the cache open, or how many these were and after each space an inbox. They stay for
-- longer than any lease that they can belong to.

-- note adds the asker to the waiters, and returns an error if it can't. Once most processes wait, or very many, or where there are few,
-- one message for all is cheaper.
local function note(waiters, ms)
  if waiters == '*' or waiters and string.find(waiters, ARGV[5], 1, true) then
    return {}
  end
  local known = waiters and string.match(waiters, '^%d+')
  local processes = tonumber(known or redis.pcall('PUBSUB', 'NUMSUB', ARGV[6])[2] or 0)
  local waiting = 1
  if known then
    waiting = 1 + (#waiters - #known) / (1 + #ARGV[5]) -- not counted, for this is asked by each of them
  end
  local list = (known and waiters or processes) .. ' ' .. ARGV[5]
  if processes <= 4 or 2 * waiting >= processes or waiting > 256 then
    list = '*'
  end
  return redis.pcall('SET', KEYS[5], list, 'PX', ms)
end

-- generations are those of the cache and of the tags, or nil: then the asker reads them.
local function generations()
  local of = KEYS[3] and redis.pcall('ZMSCORE', KEYS[3], '', unpack(ARGV, 8))
  return of and not of.err and of or nil
end

local seen = ARGV[3]
local lease, value, waiters, stands
local before = 0
if seen == '' then -- nothing was there a moment ago, so this costs nothing; MGET gives nil for a wrong type
  local all = redis.call('MGET', KEYS[2], KEYS[5] or KEYS[2], KEYS[1])
  lease, waiters, value = all[1], KEYS[5] and all[2], all[3]
else -- something unusable is there, perhaps large: read it only if it is another one by now
  local both = redis.call('MGET', KEYS[2], KEYS[5] or KEYS[2])
  lease, waiters = both[1], KEYS[5] and both[2]
  local id = part(KEYS[1], 2, 17)
  stands = id == seen
  if id and id ~= '' and id ~= seen then
    value = redis.call('GET', KEYS[1])
  end
end

-- A value that the asker hasn't seen comes first: beside it somebody may refresh it, or have failed to.
if value and #value > 2 and string.sub(lease or '', 2, 33) ~= ARGV[1] then
  if #value > 65536 then -- a large value through Lua holds up everybody: the asker reads it
    return {'value'}
  end
  return {'value', value, generations()}
end

if lease then
  local mark = string.sub(lease, 1, 1)
  if #lease == 49 and string.find(lease, '^[-+]%x+$') then
    local holder = string.sub(lease, 2, 33)
    if holder == ARGV[1] then -- the first answer was lost
      return {'granted', string.sub(lease, 34), 0, stands and (generations() or 1) or nil}
    end
    local left = redis.call('PTTL', KEYS[2])
    if left >= 0 and left <= math.max(1000 * ARGV[2], 3600000) then
      if mark == '-' and ARGV[5] ~= '' then
        local noted
        if ARGV[5] == '+' or not string.find(holder, '%u') then
          noted = redis.pcall('SETRANGE', KEYS[2], 0, '+')
        else
          noted = note(waiters, left + ARGV[7])
        end
        if type(noted) == 'table' and noted.err then -- out of memory: no message will come, so the asker asks again soon
          left = math.min(left, 100)
        end
      end
      return {'held', holder, left}
    end
  elseif mark == '!' then
    local kind, load, kept, backoff, failures, payload = string.match(lease, '^!(%a)(%x+):(%d+):(%d+):(%d+):(.*)$')
    if kind and #kept < 16 and #backoff < 16 and #failures < 10 then -- else it is none that we have written
      before = tonumber(failures)
      local left = redis.call('PTTL', KEYS[2])
      local rest = math.min(backoff - (kept - left), left)
      if left >= 0 and (rest > 0 or load == ARGV[4]) then
        return {'outcome', load, math.max(rest, 0), kind, payload}
      end
    end
  end
  -- What is left is no lease, or one without an end, or with an end that no load has: somebody else wrote it. It is
  -- overwritten.
end

local number, last
if KEYS[3] then
  number, last = later(KEYS[3], KEYS[4])
else
  local time = redis.call('TIME')
  number = time[1] .. string.format('%06d', time[2])
end
redis.call('SET', KEYS[2], '-' .. ARGV[1] .. number, 'PX', ARGV[2])
if waiters then -- whose load has died; those who have not asked again yet are told of this one
  redis.call('PEXPIRE', KEYS[5], ARGV[2] + ARGV[7])
end
if last and not last[2] then -- all that is known of the cache may have been evicted
  begin(KEYS[3], KEYS[4], string.format('%.0f', number - 1))
end
if last then
  granted(KEYS[3], number)
end
return {'granted', number, before, stands and (generations() or 1) or nil}
