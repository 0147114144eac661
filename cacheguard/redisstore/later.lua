-- Begins the scripts that make or compare generations: a sorted set (set) in which '' is the whole cache, and that one once more
-- by itself (whole), for values without tags.

-- grant is the member of the set whose score is the stamp of the last grant. No tag has this name.
local grant = '\0'

-- later returns the time in microseconds since 1970, but after every generation and every grant: where the clock was set back, what
-- is loaded or invalidated now is newer all the same. Then what ZRANGE said of the last generation or grant.
local function later(set, whole)
  local time = redis.call('TIME')
  local now = time[1] .. string.format('%06d', time[2])
  local top = redis.pcall('ZRANGE', set, -1, -1, 'WITHSCORES')
  local last = top[2] and (tonumber(top[2]) or 2^53)
  local alone = redis.call('MGET', whole)[1] -- nil for a wrong type
  if alone and string.find(alone, '^[1-9]%d*$') then
    if tonumber(alone) > (last or 0) then
      last = tonumber(alone)
    end
  else -- evicted, or somebody else wrote it
    local score = top[2] and redis.call('ZSCORE', set, '')
    redis.pcall('DEL', whole)
    if score then
      redis.pcall('SET', whole, score)
    end
  end
  if last and not (last <= now + 86400e6) then -- a day ahead: nobody knows since when
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

-- begin has a cache of which nothing is known begin with this generation: what was loaded before counts no more.
local function begin(set, whole, generation)
  redis.pcall('ZADD', set, 'NX', generation, '')
  redis.pcall('SET', whole, generation, 'NX')
end

-- granted notes the stamp of a grant, so that each invalidation from now on is newer than what is loaded with it.
local function granted(set, stamp)
  redis.pcall('ZADD', set, stamp, grant)
end
