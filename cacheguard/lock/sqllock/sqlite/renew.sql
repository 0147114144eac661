-- Gives a lock more time. No row: the owner is not the last one that had the lock, or has given it
-- back.
-- Parameters: name, owner, lease in milliseconds.
UPDATE cacheguard_locks SET expires = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + ?3
WHERE name = ?1 AND owner = ?2 AND expires > 0
RETURNING 1
