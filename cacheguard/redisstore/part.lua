-- This text is put in front of all scripts that read a part of a value.

-- part returns the bytes of a value from one offset to another, or nil if the key isn't a string.
-- Any other error ends the script, so that a missing right is noticed.
local function part(key, from, to)
  local bytes = redis.pcall('GETRANGE', key, from, to)
  if type(bytes) == 'string' then
    return bytes
  end
  if not string.find(bytes.err, 'WRONGTYPE', 1, true) then
    return redis.call('GETRANGE', key, from, to)
  end
end
