-- Invalidates the values that have one of the tags. Without tags it invalidates the whole cache.
-- KEYS: the generations of the cache, a sorted set in which the member '' is the whole cache;
--       the generation of the whole cache by itself, for values without tags
-- ARGV: the cache's channel, the common channel, the message without the generation at its end,
--       the largest number of tags to remember, then the tags
-- Returns the generation, in microseconds since 1970
local now, last = later(KEYS[1], KEYS[2])
-- The first write is a removal. After it Redis accepts the other writes of this script even if
-- memory is full.
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
if many > 0 then
  -- The script forgets the oldest tenth of the tags. The newest forgotten generation becomes the
  -- cache's generation in the set. So older values with tags are invalid, whatever their tags.
  local to = many + math.floor(ARGV[4] / 10)
  local oldest = redis.call('ZRANGE', KEYS[1], to, to, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', oldest)
  redis.call('ZADD', KEYS[1], 'GT', oldest, '')
end
change(ARGV[1], ARGV[2], ARGV[3] .. now)
return now
