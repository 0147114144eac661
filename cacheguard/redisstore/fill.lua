-- Stores what a load returned, if the lease is still its own.
-- KEYS: value, lease, and where there are inboxes the waiters
-- ARGV: token .. number, frame, ms to keep, message without its frame, most bytes of a frame in a message, the cache's channel, the common one
-- Returns stored | gone | other
local both = redis.call('MGET', KEYS[2], KEYS[3] or KEYS[2])
local lease = both[1]
if lease and string.sub(lease, 2) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  redis.call('DEL', unpack(KEYS, 2))
  local carried = ''
  if #ARGV[2] <= tonumber(ARGV[5]) then
    carried = ARGV[2]
  end
  wake(string.sub(lease, 1, 1), KEYS[3] and both[2], ARGV[6], ARGV[7], ARGV[4] .. carried)
  return 'stored'
end
-- The first answer to this fill may have been lost: the frame carries the id of its load.
local id = redis.pcall('GETRANGE', KEYS[1], 2, 17)
if type(id) == 'string' and id == string.sub(ARGV[2], 3, 18) then
  return 'stored'
end
if lease and #lease == 49 and string.find(lease, '^[-+]%x+$') then
  return 'other'
end
return 'gone' -- an outcome, or nothing that is ours
