-- Asks one master for a lock.
-- KEYS: the lock
-- ARGV: the token, the lease in ms, the asker's id in the list of waiters or '' if it won't wait,
--       '1' to take the lock even if another token has it
-- Returns mine | other, the holder's token, ms left (-1: the lock has no end), how many waiters
--         came before this one
--
-- The lock is the token of its holder (26 bytes), followed by the ids of the waiters (8 bytes each)
-- in the order in which they asked. The first 24 bytes of a token are the claim's, the last 2 bytes
-- are the master's. If a locker knows one server by two names, it asks this server twice, with two
-- tokens of one claim. The server gives its vote to the first token and answers other to the
-- second, even if the second is to take the lock from its holder.
local lock = redis.call('GET', KEYS[1])
if lock and ARGV[4] == '1' and string.sub(lock, 1, 24) ~= string.sub(ARGV[1], 1, 24) then
  lock = ARGV[1] .. string.sub(lock, 27) -- the waiters stay
end
if not lock or string.sub(lock, 1, 26) == ARGV[1] then
  -- If a copy of this request came first, the token has the lock already. Then the lease starts
  -- again, because the asker counts it from the request that was answered.
  redis.call('SET', KEYS[1], lock or ARGV[1], 'PX', ARGV[2])
  return {'mine'}
end

local place = (#lock - 26) / 8
if place < 0 or place ~= math.floor(place) then -- no locker has written this: it is not changed
  place = 0
elseif ARGV[3] ~= '' then
  local at = string.find(lock, ARGV[3], 27, true)
  if at then
    place = math.floor((at - 27) / 8)
  elseif place < 64 then
    -- If memory is full, the asker isn't in the list. Then Redis sends the message that would wake
    -- it only if there is another waiter.
    redis.pcall('APPEND', KEYS[1], ARGV[3])
  end
end
return {'other', string.sub(lock, 1, 26), redis.call('PTTL', KEYS[1]), place}
