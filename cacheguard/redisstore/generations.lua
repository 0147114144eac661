-- Returns the time, and the generations of a cache and of its tags. If the cache has no generation,
-- the cache gets one just before the present time, because the set may have been evicted.
-- KEYS: the generations of the cache, a sorted set in which the member '' is the whole cache;
--       the generation of the whole cache by itself, for values without tags
-- ARGV: the tags; or only the member grant, if the returned time becomes the stamp of a grant
-- Returns the time in microseconds since 1970, the generation of the cache, and for each tag its
--         generation, or false if it has none
local now, last = later(KEYS[1], KEYS[2])
local whole
-- If the key has the wrong type, another program has written it.
if not string.find(last.err or '', 'WRONGTYPE', 1, true) then
  whole = redis.call('ZSCORE', KEYS[1], '')
end
if not whole then
  whole = string.format('%.0f', now - 1) -- loads that are granted from now on count
  -- After this removal Redis accepts the next writes of this script even if memory is full.
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[1], whole, '')
  redis.call('SET', KEYS[2], whole, 'NX')
end
if ARGV[1] == grant then
  granted(KEYS[1], now)
end
local of = {now, whole}
for i, tag in ipairs(ARGV) do
  of[i + 2] = redis.call('ZSCORE', KEYS[1], tag)
end
return of
