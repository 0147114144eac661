-- Invalidates what has one of the tags, or without tags the whole cache.
-- KEYS: generations, a sorted set in which '' is the whole cache
-- ARGV: channel, message without its generation, most tags to remember, tags
-- Returns the generation: microseconds since 1970
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', time[2])
local whole = redis.pcall('ZSCORE', KEYS[1], '')
if #ARGV == 3 or (whole and whole.err) then
  redis.call('DEL', KEYS[1])
end
redis.call('ZADD', KEYS[1], 'NX', now, '')
for i = 4, #ARGV do
  redis.call('ZADD', KEYS[1], 'GT', now, ARGV[i])
end
local many = redis.call('ZCARD', KEYS[1]) - ARGV[3]
if many > 0 then -- forget a tenth: what is older than the last of these counts no more, whatever its tags
  local last = redis.call('ZRANGE', KEYS[1], many + math.floor(ARGV[3] / 10), many + math.floor(ARGV[3] / 10), 'WITHSCORES')
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', last[2])
  redis.call('ZADD', KEYS[1], last[2], '')
end
redis.call('PUBLISH', ARGV[1], ARGV[2] .. now)
return now
