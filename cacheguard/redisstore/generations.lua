-- Returns what the clock says, and the generations of a cache and of tags of it. Where nothing is known of the cache, it is
-- as old as this moment: all that is known may have been evicted.
-- KEYS: generations, a sorted set in which '' is the whole cache, and that one alone, for values without tags
-- ARGV: tags, or grant alone: the time becomes the stamp of a grant
-- Returns microseconds since 1970, generation of the cache, of each tag or false
local now, last = later(KEYS[1], KEYS[2])
local whole
if not string.find(last.err or '', 'WRONGTYPE', 1, true) then -- else somebody else wrote it
  whole = redis.call('ZSCORE', KEYS[1], '')
end
if not whole then
  whole = string.format('%.0f', now - 1) -- a load that is granted from now on counts
  redis.call('DEL', KEYS[1]) -- after which Redis takes what follows, also when memory is short
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
