-- Asks for the lease of a key, which is the right to load it. The script looks for a value first,
-- so the asker needs no second look-up.
-- KEYS: the value, the lease; on a single server also the generations of the cache, the generation
--       of the whole cache, the waiters
-- ARGV: the token, the lease time in ms, the id of a value that the asker can't use or '', the load
--       that the asker has waited for or '', where a waiting asker gets its message ('' if it won't
--       wait, '+' for the common channel, else its inbox), the cache's channel, how many ms longer
--       than the lease the waiters are kept; on a single server also the tags that a value may have
-- Returns one of:
--       granted, number of the grant, failures in a row before it; if the value that the asker
--               can't use is still there, also the generations of the cache and of the tags, or 1
--       held, holder, ms left of the lease
--       value, frame, generations of the cache and of the tags; if the frame is large, only: value
--       outcome, load, ms left of the back-off, kind, payload
--
-- A lease is a mark, the token in 32 hex digits, and the number of the grant in 16 digits. The mark
-- is '+' if a process waits on the common channel, else '-'. If the token has capital letters, the
-- holder reads the list of waiters when it ends the lease. Otherwise it only looks at the mark.
--
-- The outcome of the last load may be in the place of the lease:
-- '!', kind, load, ':', ms kept, ':', ms of back-off, ':', failures in a row, ':', payload.
--
-- The list of waiters is '*' if all processes that have the cache open get the message. Otherwise
-- it is the number of these processes when the list began, followed by the inboxes of those that
-- wait, each after a space. The list is kept for longer than the lease.

-- note adds the asker to the waiters, and returns a table with an error if Redis refuses this. One
-- message for all processes is cheaper if few processes have the cache open, if at least half of
-- them wait, or if very many wait. Then the list becomes '*'.
local function note(waiters, ms)
  if waiters == '*' or waiters and string.find(waiters, ARGV[5], 1, true) then
    return {}
  end
  local known = waiters and string.match(waiters, '^%d+')
  local processes = tonumber(known or redis.pcall('PUBSUB', 'NUMSUB', ARGV[6])[2] or 0)
  local waiting = 1
  if known then
    -- The length of the list gives the number of inboxes. Counting them would take longer, and
    -- every waiting process runs this.
    waiting = 1 + (#waiters - #known) / (1 + #ARGV[5])
  end
  local list = (known and waiters or processes) .. ' ' .. ARGV[5]
  if processes <= 4 or 2 * waiting >= processes or waiting > 256 then
    list = '*'
  end
  return redis.pcall('SET', KEYS[5], list, 'PX', ms)
end

-- generations returns the generations of the cache and of the tags. If it returns nil, the asker
-- reads them itself.
local function generations()
  local of = KEYS[3] and redis.pcall('ZMSCORE', KEYS[3], '', unpack(ARGV, 8))
  return of and not of.err and of or nil
end

local seen = ARGV[3]
local lease, value, waiters, stands
local before = 0
if seen == '' then
  -- There was no value a moment ago, so reading the value costs nothing. For a key of the wrong
  -- type MGET returns no value and no error.
  local all = redis.call('MGET', KEYS[2], KEYS[5] or KEYS[2], KEYS[1])
  lease, waiters, value = all[1], KEYS[5] and all[2], all[3]
else
  -- There was a value that the asker can't use, and it may be large. The script reads the value
  -- only if another one has replaced it.
  local both = redis.call('MGET', KEYS[2], KEYS[5] or KEYS[2])
  lease, waiters = both[1], KEYS[5] and both[2]
  local id = part(KEYS[1], 2, 17)
  stands = id == seen
  if id and id ~= '' and id ~= seen then
    value = redis.call('GET', KEYS[1])
  end
end

-- If there is a value that the asker hasn't seen, the answer is this value, even if there is also a
-- lease or an outcome, for example of its refresh.
if value and #value > 2 and string.sub(lease or '', 2, 33) ~= ARGV[1] then
  if #value > 65536 then
    -- A large value that goes through Lua would block Redis for long. So the asker reads it itself.
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
        if type(noted) == 'table' and noted.err then
          -- Memory is full. The asker will get no message, so it is told to ask again soon.
          left = math.min(left, 100)
        end
      end
      return {'held', holder, left}
    end
  elseif mark == '!' then
    local kind, load, kept, backoff, failures, payload = string.match(lease, '^!(%a)(%x+):(%d+):(%d+):(%d+):(.*)$')
    -- An outcome with longer numbers was not written by a store.
    if kind and #kept < 16 and #backoff < 16 and #failures < 10 then
      before = tonumber(failures)
      local left = redis.call('PTTL', KEYS[2])
      local rest = math.min(backoff - (kept - left), left)
      if left >= 0 and (rest > 0 or load == ARGV[4]) then
        return {'outcome', load, math.max(rest, 0), kind, payload}
      end
    end
  end
  -- The entry is overwritten in these cases: it is an outcome whose back-off is over, or it has no
  -- end, or its end is later than the end of any lease, or no store has written it.
end

local number, last
if KEYS[3] then
  number, last = later(KEYS[3], KEYS[4])
else
  local time = redis.call('TIME')
  number = time[1] .. string.format('%06d', time[2])
end
redis.call('SET', KEYS[2], '-' .. ARGV[1] .. number, 'PX', ARGV[2])
-- Waiters that have not asked again yet get the message of this load.
if waiters then -- whose load has died
  redis.call('PEXPIRE', KEYS[5], ARGV[2] + ARGV[7])
end
if last and not last[2] then -- there are no generations: they may have been evicted
  begin(KEYS[3], KEYS[4], string.format('%.0f', number - 1))
end
if last then
  granted(KEYS[3], number)
end
return {'granted', number, before, stands and (generations() or 1) or nil}
