-- Stores what a load returned, if the lease is still its own.
-- KEYS: value, lease
-- ARGV: token .. number, frame, ms to keep, channel, message without its frame, most bytes of a frame in a message
-- Returns stored | gone | other
local lease = redis.call('MGET', KEYS[2])[1]
if lease and string.sub(lease, 2) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  redis.call('DEL', KEYS[2])
  if string.sub(lease, 1, 1) == '+' then
    local carried = ''
    if #ARGV[2] <= tonumber(ARGV[6]) then
      carried = ARGV[2]
    end
    redis.call('PUBLISH', ARGV[4], ARGV[5] .. carried)
  end
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
