-- Begins the scripts that tell something. Channels are of three kinds: an inbox is one process', a cache's is that of all processes
-- that have the cache open, and the common one is for programs that know no other.

-- change tells everybody who has the cache open, and programs on the common channel if there are any: these subscribe to it, while
-- the others listen by a pattern, which isn't counted.
local function change(channel, common, message)
  redis.call('PUBLISH', channel, message)
  if common ~= channel then
    local subscribed = redis.pcall('PUBSUB', 'NUMSUB', common)
    if subscribed[2] ~= 0 then -- also when there is no right to ask
      redis.call('PUBLISH', common, message)
    end
  end
end

-- wake tells those who wait for a load: the lease's mark says whether anybody does on the common channel, the waiters who else.
local function wake(mark, waiters, channel, common, message)
  if mark == '+' then
    redis.call('PUBLISH', common, message)
  end
  if waiters == '*' then
    redis.call('PUBLISH', channel, message)
  else
    for inbox in string.gmatch(waiters or '', ' (%x+)') do
      redis.call('PUBLISH', common .. ':' .. inbox, message)
    end
  end
end
