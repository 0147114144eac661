-- Removes everything known about a key.
-- KEYS: value, lease, value of the next format version, and where there are inboxes the waiters
-- ARGV: the cache's channel, the common one, message
redis.call('DEL', unpack(KEYS))
change(ARGV[1], ARGV[2], ARGV[3])
return 1
