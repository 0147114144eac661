-- Returns the time on the clock of the generations, and the generations of a cache and of its tags.
-- If nothing is known of the cache, its generation is the present time: everything known may have
-- been evicted.
-- KEYS: generations, a sorted set in which '' is the whole cache, and that one alone, for values without tags
-- ARGV: tags
-- Returns microseconds since 1970, generation of the cache, of each tag or false
local now, last = later(KEYS[1], KEYS[2])
local whole
if not string.find(last.err or '', 'WRONGTYPE', 1, true) then -- else somebody else wrote it
  whole = redis.call('ZSCORE', KEYS[1], '')
end
if not whole then
  whole = string.format('%.0f', now - 1) -- so that a load that is granted from now on is valid
  redis.call('DEL', KEYS[1]) -- after a removal Redis accepts the following writes even if memory is short
  redis.call('ZADD', KEYS[1], whole, '')
  redis.call('SET', KEYS[2], whole, 'NX')
end
local of = {now, whole}
for i, tag in ipairs(ARGV) do
  of[i + 2] = redis.call('ZSCORE', KEYS[1], tag)
end
return of
