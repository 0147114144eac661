-- Removes everything known about a key.
-- KEYS: all its names, of all versions
-- ARGV: the cache's channel, the common one, message
redis.call('DEL', unpack(KEYS))
change(ARGV[1], ARGV[2], ARGV[3])
return 1
