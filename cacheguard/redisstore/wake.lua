-- This text precedes the scripts that publish messages. There are three kinds of channels: the
-- inbox of one process, the channel of a cache for all processes that have the cache open, and the
-- common channel for programs that know no other.

-- change tells every process that has the cache open, and programs on the common channel if there
-- are any. These programs subscribe to the common channel by name, while other processes listen to
-- it by a pattern, which isn't counted.
local function change(channel, common, message)
  redis.call('PUBLISH', channel, message)
  if common ~= channel then
    local subscribed = redis.pcall('PUBSUB', 'NUMSUB', common)
    if subscribed[2] ~= 0 then -- also if the user has no right to ask
      redis.call('PUBLISH', common, message)
    end
  end
end

-- wake tells the processes that wait for a load. The lease's mark says whether a program waits on
-- the common channel, and waiters says which processes wait besides.
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
