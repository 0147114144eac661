-- Removes some rows of names that nobody has locked for long. Their tokens are older than that, too, so a new row's,
-- which is made of the clock, is larger.
-- Parameter: how long, in milliseconds.
DELETE FROM cacheguard_locks WHERE name IN (
	SELECT name FROM cacheguard_locks
	WHERE expires < CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - ?1
		AND token < (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - ?1) * 1000
	LIMIT 1000
)
