-- Gives back one of a budget's permits, and sends a message if processes wait for one.
-- KEYS: the permits, the mark that processes wait for one
-- ARGV: the token, the budgets' channel, the common channel, the message
-- Returns 1 if the token had a permit, else 0
if redis.call('TYPE', KEYS[1]).ok ~= 'zset'
  or redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('DEL', KEYS[2]) == 1 then
  change(ARGV[2], ARGV[3], ARGV[4])
end
return 1
