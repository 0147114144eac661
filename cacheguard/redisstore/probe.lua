-- Finds out whether the node of this key accepts writes. It changes nothing.
-- KEYS: a key that doesn't exist
return redis.call('PEXPIRE', KEYS[1], 1)
