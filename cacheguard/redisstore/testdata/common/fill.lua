-- Stores the result of a load, if the lease is still its own.
-- KEYS: the value, the lease
-- ARGV: token .. number, the frame, the ms to keep the frame, the channel, the message without the
--       frame, the largest size in bytes of a frame that the message carries
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
-- If the stored value has the id of this load, the first try of this fill was carried out, and its
-- answer was lost.
local id = redis.pcall('GETRANGE', KEYS[1], 2, 17)
if type(id) == 'string' and id == string.sub(ARGV[2], 3, 18) then
  return 'stored'
end
if lease and #lease == 49 and string.find(lease, '^[-+]%x+$') then
  return 'other'
end
return 'gone' -- there is no lease: nothing, an outcome, or bytes that no store has written
