-- Stores what a load returned, if the lease is still its own.
-- KEYS: value, lease, and where there are inboxes the waiters; of a claim then all names of the key's other versions
-- ARGV: token .. number, frame, ms to keep, message without its frame, most bytes of a frame in a message, the cache's channel, the
-- common one; of a claim where the names of the other versions begin, and the message that a key has changed
-- Returns stored | gone | other
local others = ARGV[8] and tonumber(ARGV[8]) or #KEYS + 1
local waiters = others > 3 and KEYS[3]
local both = redis.call('MGET', KEYS[2], waiters or KEYS[2])
local lease = both[1]
if lease and string.sub(lease, 2) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  redis.call('DEL', KEYS[2], waiters or KEYS[2])
  if KEYS[others] and redis.call('DEL', unpack(KEYS, others)) > 0 then -- made of what was so before, perhaps
    change(ARGV[6], ARGV[7], ARGV[9])
  end
  local carried = ''
  if #ARGV[2] <= tonumber(ARGV[5]) then
    carried = ARGV[2]
  end
  wake(string.sub(lease, 1, 1), waiters and both[2], ARGV[6], ARGV[7], ARGV[4] .. carried)
  return 'stored'
end
-- The first answer to this fill may have been lost: the frame carries the id of its load.
if part(KEYS[1], 2, 17) == string.sub(ARGV[2], 3, 18) then
  return 'stored'
end
if lease and #lease == 49 and string.find(lease, '^[-+]%x+$') then
  return 'other'
end
return 'gone' -- an outcome, or nothing that is ours
