-- Marks a value stale, and ends its lease.
-- KEYS: value, lease, value of the next format version
-- ARGV: channel, message, where the mark begins, mark
local there = redis.pcall('GETRANGE', KEYS[1], ARGV[3], ARGV[3] + #ARGV[4] - 1)
if there == string.rep('\0', #ARGV[4]) then -- a mark that is there stays: what is stale is so since the first one
  redis.call('SETRANGE', KEYS[1], ARGV[3], ARGV[4])
end
redis.call('DEL', KEYS[2], KEYS[3])
redis.call('PUBLISH', ARGV[1], ARGV[2])
return 1
