-- Stores a value and ends whatever lease there is.
-- KEYS: value, lease, value of the next format version
-- ARGV: frame, ms to keep, channel, message
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[2], KEYS[3])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
