-- Marks the values of a key stale, and ends its leases.
-- KEYS: all names of the key: first its value in each version, then all other names
-- ARGV: the cache's channel, the common channel, the message, the offset of the mark in a frame,
--       the mark, the number of versions
local versions = tonumber(ARGV[6])
for n = 1, versions do
  local there = part(KEYS[n], ARGV[4], ARGV[4] + #ARGV[5] - 1)
  if there == string.rep('\0', #ARGV[5]) then
    -- The value has no mark yet. If it had one, that mark would stay, because the value has been
    -- stale since then.
    redis.call('SETRANGE', KEYS[n], ARGV[4], ARGV[5])
  end
end
redis.call('DEL', unpack(KEYS, versions + 1))
change(ARGV[1], ARGV[2], ARGV[3])
return 1
