-- Finds out whether the node that has this name takes writes, without changing anything.
-- KEYS: a name that nothing has
return redis.call('PEXPIRE', KEYS[1], 1)
