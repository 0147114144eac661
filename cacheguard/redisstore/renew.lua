-- Sets the remaining time of a lease, if the lease is still the load's own.
-- KEYS: the lease, and on a single server the waiters
-- ARGV: token .. number, the remaining time in ms, how many ms longer the waiters are kept
-- Returns mine | gone | other
local both = redis.call('MGET', KEYS[1], KEYS[2] or KEYS[1])
local lease = both[1]
if lease and string.sub(lease, 2) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if KEYS[2] and both[2] then
    redis.call('PEXPIRE', KEYS[2], ARGV[2] + ARGV[3])
  end
  return 'mine'
end
if lease and #lease == 49 and string.find(lease, '^[-+]%x+$') then
  return 'other'
end
return 'gone' -- there is no lease: nothing, an outcome, or bytes that no store has written
