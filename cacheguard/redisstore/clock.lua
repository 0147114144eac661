-- Returns the clock of the node that has this key.
-- KEYS: any key that is the same for the whole fleet
return redis.call('TIME')
