-- Says how a lock is held by another, or with nothing left that it has a token after which there is none. It needs no right to write, for which there is one for the whole database.
-- Parameters: name, owner.
SELECT false, token, expires - CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), false
FROM cacheguard_locks
WHERE name = ?1 AND owner <> ?2 AND (expires > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
	OR typeof(token) <> 'integer' OR token = 9223372036854775807)
