-- Begins the scripts that look at a part of a value.

-- part returns some bytes of a value, or nil if the key holds something else than a string. Any other error ends the script, so that
-- a right that is missing is noticed.
local function part(key, from, to)
  local bytes = redis.pcall('GETRANGE', key, from, to)
  if type(bytes) == 'string' then
    return bytes
  end
  if not string.find(bytes.err, 'WRONGTYPE', 1, true) then
    return redis.call('GETRANGE', key, from, to)
  end
end
