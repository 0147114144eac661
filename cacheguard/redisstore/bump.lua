-- Invalidates what has one of the tags, or without tags the whole cache.
-- KEYS: generations, a sorted set in which '' is the whole cache, and that one alone, for values without tags
-- ARGV: the cache's channel, the common one, message without its generation, most tags to remember, tags
-- Returns the generation: microseconds since 1970
local now, last = later(KEYS[1], KEYS[2])
-- A removal comes first, for after one Redis takes what follows, also when memory is short.
if #ARGV == 4 then
  redis.call('DEL', KEYS[1], KEYS[2])
elseif string.find(last.err or '', 'WRONGTYPE', 1, true) then
  redis.call('DEL', KEYS[1])
else
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(0')
end
redis.call('ZADD', KEYS[1], 'NX', now, '')
redis.call('SET', KEYS[2], now, 'NX')
for i = 5, #ARGV do
  redis.call('ZADD', KEYS[1], 'GT', now, ARGV[i])
end
local many = redis.call('ZCARD', KEYS[1]) - ARGV[4]
if many > 0 then -- forget a tenth: what is older than the last of these counts no more, whatever its tags
  local to = many + math.floor(ARGV[4] / 10)
  local oldest = redis.call('ZRANGE', KEYS[1], to, to, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', oldest)
  redis.call('ZADD', KEYS[1], 'GT', oldest, '')
end
change(ARGV[1], ARGV[2], ARGV[3] .. now)
return now
