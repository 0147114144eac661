-- Returns one of a budget's permits, and tells those who wait for one.
-- KEYS: permits, mark of those who wait
-- ARGV: token, the budgets' channel, the common one, message
-- Returns 1 if it was held
if redis.call('TYPE', KEYS[1]).ok ~= 'zset'
  or redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('DEL', KEYS[2]) == 1 then
  change(ARGV[2], ARGV[3], ARGV[4])
end
return 1
