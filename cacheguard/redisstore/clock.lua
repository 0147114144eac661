-- Returns the time by the clock of the node that has this key.
-- KEYS: a key that is the same for the whole fleet
return redis.call('TIME')
