-- Returns what the clock says, and the generations of a cache and of tags of it. Where nothing is known of the cache, it is
-- as old as this moment: all that is known may have been evicted.
-- KEYS: generations, a sorted set in which '' is the whole cache
-- ARGV: tags
-- Returns microseconds since 1970, generation of the cache, of each tag or false
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', time[2])
local last = redis.pcall('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] and not ((tonumber(last[2]) or 2^53) <= now + 86400e6) then -- a day ahead: nobody knows since when
  last[2] = string.format('%.0f', now + 86400e6)
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[1], last[2], '')
end
if last[2] and tonumber(last[2]) >= tonumber(now) then
  now = string.format('%.0f', last[2] + 1) -- the clock was set back: what is loaded now is newer all the same
end
local whole
if not string.find(last.err or '', 'WRONGTYPE', 1, true) then -- else somebody else wrote it
  whole = redis.call('ZSCORE', KEYS[1], '')
end
if not whole then
  whole = string.format('%.0f', now - 1) -- a load that is granted from now on counts
  redis.call('DEL', KEYS[1]) -- after which Redis takes what follows, also when memory is short
  redis.call('ZADD', KEYS[1], whole, '')
end
local of = {now, whole}
for i, tag in ipairs(ARGV) do
  of[i + 2] = redis.call('ZSCORE', KEYS[1], tag)
end
return of
