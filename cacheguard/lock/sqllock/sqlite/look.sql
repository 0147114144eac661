-- Says how a lock is held by another. It needs no right to write, for which there is one for the whole database.
-- Parameters: name, owner.
SELECT false, token, expires - CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), false
FROM cacheguard_locks
WHERE name = ?1 AND owner <> ?2 AND expires > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
