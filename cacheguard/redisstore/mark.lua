-- Marks a value stale, and ends its lease.
-- KEYS: value, lease, value of the next format version, and where there are inboxes the waiters
-- ARGV: the cache's channel, the common one, message, where the mark begins, mark
local there = redis.pcall('GETRANGE', KEYS[1], ARGV[4], ARGV[4] + #ARGV[5] - 1)
if there == string.rep('\0', #ARGV[5]) then -- a mark that is there stays: what is stale is so since the first one
  redis.call('SETRANGE', KEYS[1], ARGV[4], ARGV[5])
end
redis.call('DEL', unpack(KEYS, 2))
change(ARGV[1], ARGV[2], ARGV[3])
return 1
