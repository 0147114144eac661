-- Takes a lock over from its holder, which learns of this at its next renewal.
-- KEYS: the lock, the fence, the key "given" of the new owner
-- ARGV: the new owner, the lease in ms, the holder's fencing token or '' to take the lock from any
--       holder, the ms to remember the fencing token
-- Returns the fencing token. It returns nothing if the holder has another token, or if this is a
--         late copy of a request whose lock was given back. The error FENCE and a key means that
--         there are no more tokens.
local owner = ARGV[1]
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #owner + 1) == owner .. ' ' then -- the first answer was lost
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return string.sub(held, #owner + 2)
end
local holder = held and string.match(held, ' (%d+)$') or ''
if ARGV[3] ~= '' and holder ~= ARGV[3] or redis.call('GET', KEYS[3]) then
  return false
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local before = redis.call('GET', KEYS[2])
for _, text in ipairs({before or '', holder}) do
  local last = tonumber(text) or 0
  if last == 2^53 - 1 then -- there is no larger token: Lua can't tell the next numbers apart
    return redis.error_reply('FENCE ' .. KEYS[2])
  elseif last >= now and last < 2^53 then
    now = last + 1
  end
end
local token = string.format('%.0f', now)
redis.call('SET', KEYS[2], token, 'PX', ARGV[4])
redis.call('SET', KEYS[1], owner .. ' ' .. token, 'PX', ARGV[2])
return token
