-- Removes the value and takes the lease over from whoever has it.
-- KEYS: value, lease, value of the next format version, and where they are on the same node the generations of the cache
-- ARGV: token, lease time in ms, channel, message
-- Returns the number of the grant
local lease = redis.call('MGET', KEYS[2])[1]
local number
if lease and string.sub(lease, 2, 33) == ARGV[1] then -- the first answer was lost
  number = string.sub(lease, 34)
else
  local time = redis.call('TIME')
  number = time[1] .. string.format('%06d', time[2])
  local last = KEYS[4] and redis.pcall('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2]
  if last and not ((tonumber(last) or 2^53) <= number + 86400e6) then -- a day ahead: nobody knows since when
    last = string.format('%.0f', number + 86400e6)
    redis.call('DEL', KEYS[4])
    redis.call('ZADD', KEYS[4], last, '')
  end
  if last and tonumber(last) >= tonumber(number) then
    number = string.format('%.0f', last + 1) -- the clock was set back: what is written now is newer all the same
  end
  redis.call('SET', KEYS[2], '-' .. ARGV[1] .. number, 'PX', ARGV[2])
  if KEYS[4] and not last then
    redis.pcall('ZADD', KEYS[4], 'NX', string.format('%.0f', number - 1), '')
  end
end
redis.call('DEL', KEYS[1], KEYS[3])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return number
