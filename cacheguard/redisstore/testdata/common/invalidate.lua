-- Removes everything known about a key.
-- KEYS: the value, the lease, the value of the next format version
-- ARGV: the channel, the message
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('PUBLISH', ARGV[1], ARGV[2])
return 1
