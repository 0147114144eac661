-- Asks one master for a lock.
-- KEYS: lock
-- ARGV: token, lease in ms, who asks if it waits, or '', '1' to take it whoever has it
-- Returns mine | other, its token, ms left (-1: it has no end), how many waited before this one
--
-- The lock is the token of its holder, of 26 bytes, and those who wait, of 8 bytes each, in the order in which they asked.
-- Of a token 24 bytes are the claim's and 2 the master's: a server that is asked by two names is asked with two tokens of one
-- claim. It has given its vote to the first, and says other to the second, also to one that takes the lock from anybody.
local lock = redis.call('GET', KEYS[1])
if lock and ARGV[4] == '1' and string.sub(lock, 1, 24) ~= string.sub(ARGV[1], 1, 24) then
  lock = ARGV[1] .. string.sub(lock, 27) -- those who wait go on waiting
end
if not lock or string.sub(lock, 1, 26) == ARGV[1] then
  -- It is ours already when a copy of the question came first. Then it begins anew, for what counts is the answer to this.
  redis.call('SET', KEYS[1], lock or ARGV[1], 'PX', ARGV[2])
  return {'mine'}
end

local place = (#lock - 26) / 8
if place < 0 or place ~= math.floor(place) then -- no lock of ours: it is left alone
  place = 0
elseif ARGV[3] ~= '' then
  local at = string.find(lock, ARGV[3], 27, true)
  if at then
    place = math.floor((at - 27) / 8)
  elseif place < 64 then
    redis.pcall('APPEND', KEYS[1], ARGV[3]) -- out of memory: then it is woken only if another waits
  end
end
return {'other', string.sub(lock, 1, 26), redis.call('PTTL', KEYS[1]), place}
