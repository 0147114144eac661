-- This text is put in front of all scripts that send messages. There are three kinds of channels.
-- Each process has an inbox. Each cache has a channel, to which all processes that have the cache
-- open listen. The common channel is for programs that know no other channel.

-- change sends a message to all processes that have the cache open. If programs are subscribed to
-- the common channel by its name, it sends the message there, too. PUBSUB NUMSUB counts only these
-- programs, because all others listen to the common channel by a pattern.
local function change(channel, common, message)
  redis.call('PUBLISH', channel, message)
  if common ~= channel then
    local subscribed = redis.pcall('PUBSUB', 'NUMSUB', common)
    if subscribed[2] ~= 0 then -- there are some, or the user has no right to ask
      redis.call('PUBLISH', common, message)
    end
  end
end

-- wake sends a message to the processes that wait for a load. If some wait on the common channel,
-- the lease's mark is '+'. All others are in the list of waiters.
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
