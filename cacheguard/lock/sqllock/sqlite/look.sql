-- Says how another owner holds the lock. If nothing of its lease is left, the row has a token after
-- which there is none. The statement doesn't need the right to write, which only one connection to
-- the database has at a time.
-- Parameters: name, owner.
SELECT false, token, expires - CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), false
FROM cacheguard_locks
WHERE name = ?1 AND owner <> ?2 AND (expires > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
	OR typeof(token) <> 'integer' OR token = 9223372036854775807)
