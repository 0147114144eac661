-- Removes the value and takes the lease over from whoever has it.
-- KEYS: value, lease, value of the next format version, and on a single server the generations of the cache, that of the whole of
-- it, and the waiters
-- ARGV: token, lease time in ms, the cache's channel, the common one, message
-- Returns the number of the grant
local lease = redis.call('MGET', KEYS[2])[1]
local number
if lease and string.sub(lease, 2, 33) == ARGV[1] then -- the first answer was lost
  number = string.sub(lease, 34)
else
  local last
  if KEYS[4] then
    number, last = later(KEYS[4], KEYS[5])
  else
    local time = redis.call('TIME')
    number = time[1] .. string.format('%06d', time[2])
  end
  redis.call('SET', KEYS[2], '-' .. ARGV[1] .. number, 'PX', ARGV[2])
  if last and not last[2] then
    begin(KEYS[4], KEYS[5], string.format('%.0f', number - 1))
  end
end
redis.call('DEL', KEYS[1], KEYS[3], KEYS[6] or KEYS[3])
change(ARGV[3], ARGV[4], ARGV[5])
return number
