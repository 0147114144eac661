-- Marks the values of a key stale, and ends its leases.
-- KEYS: all its names, first those of the values of its versions
-- ARGV: the cache's channel, the common one, message, where the mark begins, mark, how many versions there are
local versions = tonumber(ARGV[6])
for n = 1, versions do
  local there = part(KEYS[n], ARGV[4], ARGV[4] + #ARGV[5] - 1)
  if there == string.rep('\0', #ARGV[5]) then -- a mark that is there stays: what is stale is so since the first one
    redis.call('SETRANGE', KEYS[n], ARGV[4], ARGV[5])
  end
end
redis.call('DEL', unpack(KEYS, versions + 1))
change(ARGV[1], ARGV[2], ARGV[3])
return 1
