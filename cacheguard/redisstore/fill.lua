-- Stores the result of a load or the value of a claim, if the lease is still its own.
-- KEYS: the value, the lease, and on a single server the waiters; for a claim also all names
--       of the key's other versions
-- ARGV: token .. number, the frame, the ms to keep the frame, the message without the frame, the
--       largest size in bytes of a frame that the message carries, the cache's channel, the common
--       channel; for a claim also the number of the first key that belongs to another version, and
--       the message that the key was changed
-- Returns stored | gone | other
local others = ARGV[8] and tonumber(ARGV[8]) or #KEYS + 1
local waiters = others > 3 and KEYS[3]
local both = redis.call('MGET', KEYS[2], waiters or KEYS[2])
local lease = both[1]
if lease and string.sub(lease, 2) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  redis.call('DEL', KEYS[2], waiters or KEYS[2])
  if KEYS[others] and redis.call('DEL', unpack(KEYS, others)) > 0 then
    -- The removed values of other versions may be from before the write of this claim.
    change(ARGV[6], ARGV[7], ARGV[9])
  end
  local carried = ''
  if #ARGV[2] <= tonumber(ARGV[5]) then
    carried = ARGV[2]
  end
  wake(string.sub(lease, 1, 1), waiters and both[2], ARGV[6], ARGV[7], ARGV[4] .. carried)
  return 'stored'
end
-- If the stored value has the id of this load, the first try of this fill was carried out, and its
-- answer was lost.
if part(KEYS[1], 2, 17) == string.sub(ARGV[2], 3, 18) then
  return 'stored'
end
if lease and #lease == 49 and string.find(lease, '^[-+]%x+$') then
  return 'other'
end
return 'gone' -- there is no lease: nothing, an outcome, or bytes that no store has written
