-- This text is put in front of all scripts that make or compare generations. The generations of a
-- cache are in two keys. The key "set" is a sorted set of all generations, in which the member ''
-- is the whole cache. The key "whole" has the generation of the whole cache once more, for values
-- without tags.

-- later returns two results. The first is the time in microseconds since 1970. If the clock was set
-- back, the time is moved forward, so that it is later than every generation. So loads and
-- invalidations of now are always newer than the earlier invalidations. The second result is the
-- reply of ZRANGE about the last generation.
local function later(set, whole)
  local time = redis.call('TIME')
  local now = time[1] .. string.format('%06d', time[2])
  local top = redis.pcall('ZRANGE', set, -1, -1, 'WITHSCORES')
  local last = top[2] and (tonumber(top[2]) or 2^53)
  local alone = redis.call('MGET', whole)[1] -- false if the key has another type
  if alone and string.find(alone, '^[1-9]%d*$') then
    if tonumber(alone) > (last or 0) then
      last = tonumber(alone)
    end
  else -- the key was evicted, or another program has written it
    local score = top[2] and redis.call('ZSCORE', set, '')
    redis.pcall('DEL', whole)
    if score then
      redis.pcall('SET', whole, score)
    end
  end
  if last and not (last <= now + 86400e6) then
    -- A generation that is more than a day ahead of the clock is not trusted. One that is a day
    -- ahead replaces all generations of the cache.
    last = now + 86400e6
    top = {'', string.format('%.0f', last)}
    redis.call('DEL', set, whole)
    redis.call('ZADD', set, top[2], '')
    redis.call('SET', whole, top[2])
  end
  if last and last >= tonumber(now) then
    now = string.format('%.0f', last + 1)
  end
  return now, top
end

-- begin gives a cache without generations this generation. Everything loaded before it is invalid.
local function begin(set, whole, generation)
  redis.pcall('ZADD', set, 'NX', generation, '')
  redis.pcall('SET', whole, generation, 'NX')
end
