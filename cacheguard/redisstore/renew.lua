-- Sets a lease's remaining time, if it is still the load's own.
-- KEYS: lease
-- ARGV: token .. number, ms
-- Returns mine | gone | other
local lease = redis.call('MGET', KEYS[1])[1]
if lease and string.sub(lease, 2) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 'mine'
end
if lease and #lease == 49 and string.find(lease, '^[-+]%x+$') then
  return 'other'
end
return 'gone' -- an outcome, or nothing that is ours
