-- Removes some rows of names that nobody has locked for long. Their tokens are older than that, too, so a new row's,
-- which is made of the clock, is larger.
-- Parameter: how long, in microseconds.
DELETE FROM cacheguard_locks WHERE name IN (
	SELECT name FROM cacheguard_locks
	WHERE expires < clock_timestamp() - $1::bigint * interval '1 microsecond'
		AND token < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1::bigint
	LIMIT 1000
	FOR UPDATE SKIP LOCKED
)
