-- Removes the value, and takes over the lease from any load that has it. If the value has tags, a
-- remnant of the value stays.
-- KEYS: the value, the lease, the value of the next format version; on a single server also the
--       generations of the cache, the generation of the whole cache, the waiters; at the end all
--       names of the key's other versions
-- ARGV: the token, the lease time in ms, the cache's channel, the common channel, the message, and
--       the number of the first key that belongs to another version
-- Returns the number of the grant, and the remnant if there is one

-- remnant replaces a value with tags by its remnant, which is the value's id and tags, and returns
-- the remnant. If the value has no tags, remnant returns nil. The claimer needs the tags of the
-- value that it replaces. Another claim may come before the new value is stored. Then it finds the
-- tags in the remnant.
local function remnant(value)
  local head = part(value, 0, 79)
  if not head or #head < 80 then
    return nil
  end
  if string.sub(head, 1, 2) == '\0\0' then -- it is a remnant: the key was claimed before
    -- 16464 bytes are the length of a remnant with the most tags that there can be.
    return redis.call('GETRANGE', value, 0, 16463)
  end
  local size = 256 * string.byte(head, 67) + string.byte(head, 68)
  if size < 3 or string.byte(head) ~= 1 then
    return nil
  end
  local extension = redis.call('GETRANGE', value, 80, 79 + size)
  local tags = string.sub(extension, 2 + (string.byte(extension, 1, 1) or 255))
  if tags == '' then
    return nil
  end
  local id = string.char((string.byte(head, 3) + 128) % 256) .. string.sub(head, 4, 18)
  local left = '\0\0' .. id .. string.rep('\0', 62) .. tags
  redis.call('SET', value, left, 'KEEPTTL')
  return left
end

local others = tonumber(ARGV[6])
local single = others > 4
local lease = redis.call('MGET', KEYS[2])[1]
local number
if lease and string.sub(lease, 2, 33) == ARGV[1] then -- the first answer was lost
  number = string.sub(lease, 34)
else
  local last
  if single then
    number, last = later(KEYS[4], KEYS[5])
  else
    local time = redis.call('TIME')
    number = time[1] .. string.format('%06d', time[2])
  end
  redis.call('SET', KEYS[2], '-' .. ARGV[1] .. number, 'PX', ARGV[2])
  if last and not last[2] then
    begin(KEYS[4], KEYS[5], string.format('%.0f', number - 1))
  end
  if last then
    granted(KEYS[4], number)
  end
end
local left = remnant(KEYS[1])
redis.call('DEL', left and KEYS[3] or KEYS[1], KEYS[3], single and KEYS[6] or KEYS[3], unpack(KEYS, others))
change(ARGV[3], ARGV[4], ARGV[5])
return {number, left}
