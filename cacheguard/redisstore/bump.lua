-- Invalidates what has one of the tags, or without tags the whole cache.
-- KEYS: generations, a sorted set in which '' is the whole cache
-- ARGV: channel, message without its generation, most tags to remember, tags
-- Returns the generation: microseconds since 1970
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', time[2])
local last = redis.pcall('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] and not ((tonumber(last[2]) or 2^53) <= now + 86400e6) then -- a day ahead: nobody knows since when
  last[2] = string.format('%.0f', now + 86400e6)
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[1], last[2], '')
end
if last[2] and tonumber(last[2]) >= tonumber(now) then
  now = string.format('%.0f', last[2] + 1) -- the clock was set back: stamps have gone on from here
end
-- A removal comes first, for after one Redis takes what follows, also when memory is short.
if #ARGV == 3 or string.find(last.err or '', 'WRONGTYPE', 1, true) then
  redis.call('DEL', KEYS[1])
else
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(0')
end
redis.call('ZADD', KEYS[1], 'NX', now, '')
for i = 4, #ARGV do
  redis.call('ZADD', KEYS[1], 'GT', now, ARGV[i])
end
local many = redis.call('ZCARD', KEYS[1]) - ARGV[3]
if many > 0 then -- forget a tenth: what is older than the last of these counts no more, whatever its tags
  local to = many + math.floor(ARGV[3] / 10)
  local oldest = redis.call('ZRANGE', KEYS[1], to, to, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', oldest)
  redis.call('ZADD', KEYS[1], 'GT', oldest, '')
end
redis.call('PUBLISH', ARGV[1], ARGV[2] .. now)
return now
