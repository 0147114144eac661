-- Asks for the lease of a key, which is the right to load it. The script looks for a value first,
-- so the asker needs no second look-up.
-- KEYS: the value, the lease; if they are on the same node, also the generations of the cache and
--       the generation of the whole cache
-- ARGV: the token, the lease time in ms, the id of a value that the asker can't use or '', the load
--       that the asker has waited for or '', '1' if the asker will wait
-- Returns one of:
--       granted, number of the grant, failures in a row before it
--       held, holder, ms left of the lease
--       value, frame; if the frame is large, only: value
--       outcome, load, ms left of the back-off, kind, payload
--
-- A lease is a mark, the token in 32 hex digits, and the number of the grant in 16 digits. The mark
-- is '+' if a process waits, else '-'.
--
-- The outcome of the last load may be in the place of the lease:
-- '!', kind, load, ':', ms kept, ':', ms of back-off, ':', failures in a row, ':', payload.
local seen = ARGV[3]
local lease, value
local before = 0
if seen == '' then
  -- There was no value a moment ago, so reading the value costs nothing. For a key of the wrong
  -- type MGET returns no value and no error.
  local both = redis.call('MGET', KEYS[2], KEYS[1])
  lease, value = both[1], both[2]
else
  -- There was a value that the asker can't use, and it may be large. The script reads the value
  -- only if another one has replaced it.
  lease = redis.call('MGET', KEYS[2])[1]
  local id = redis.pcall('GETRANGE', KEYS[1], 2, 17)
  if type(id) == 'string' and id ~= '' and id ~= seen then
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
  return {'value', value}
end

if lease then
  local mark = string.sub(lease, 1, 1)
  if #lease == 49 and string.find(lease, '^[-+]%x+$') then
    local holder = string.sub(lease, 2, 33)
    if holder == ARGV[1] then -- the first answer was lost
      return {'granted', string.sub(lease, 34), 0}
    end
    local left = redis.call('PTTL', KEYS[2])
    if left >= 0 and left <= math.max(1000 * ARGV[2], 3600000) then
      if mark == '-' and ARGV[5] == '1' then
        redis.pcall('SETRANGE', KEYS[2], 0, '+') -- if memory is full, the asker gets no message
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
if last and not last[2] then -- there are no generations: they may have been evicted
  begin(KEYS[3], KEYS[4], string.format('%.0f', number - 1))
end
return {'granted', number, before}
