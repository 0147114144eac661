-- Returns what the clock says, and the generations of a cache and of tags of it. Where nothing is known of the cache, it is
-- as old as this moment: all that is known may have been evicted.
-- KEYS: generations, a sorted set in which '' is the whole cache
-- ARGV: tags
-- Returns microseconds since 1970, generation of the cache, of each tag or false
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', time[2])
local whole = redis.pcall('ZSCORE', KEYS[1], '')
if whole and whole.err then -- of a wrong type: somebody else wrote it
  redis.call('DEL', KEYS[1])
  whole = false
end
if not whole then
  whole = string.format('%.0f', now - 1) -- a load that is granted from now on counts
  redis.call('ZADD', KEYS[1], whole, '')
end
local of = {now, whole}
for i, tag in ipairs(ARGV) do
  of[i + 2] = redis.call('ZSCORE', KEYS[1], tag)
end
return of
