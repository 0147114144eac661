-- Removes everything known about a key.
-- KEYS: all names of the key, in all versions
-- ARGV: the cache's channel, the common channel, the message
redis.call('DEL', unpack(KEYS))
change(ARGV[1], ARGV[2], ARGV[3])
return 1
