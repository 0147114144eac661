-- Takes one of a budget's permits, or renews it if the token has one already.
-- KEYS: the permits, the mark that processes wait for one
-- ARGV: the token, the largest number of holders, the ms to hold the permit
-- Returns {1} | {0, ms until the first permit ends}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
  redis.call('DEL', KEYS[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
-- No holder takes a permit for 100 times as long as this one, so such a permit is removed.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 100 * ARGV[3], '+inf')
if not redis.call('ZSCORE', KEYS[1], ARGV[1])
  and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return {0, tonumber(first[2]) - now}
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1}
