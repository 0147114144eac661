-- Takes a lock over from its holder, who hears of it at the next renewal. No row: that one isn't the holder.
-- Parameters: name, owner, lease in milliseconds, token of the holder.
UPDATE cacheguard_locks SET
	owner = ?2,
	token = CASE WHEN owner = ?2 THEN token -- a reply was lost
		ELSE max(token + 1, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) END,
	expires = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + ?3
WHERE name = ?1
	AND CASE WHEN owner = ?2 THEN expires > 0
		ELSE token = ?4 AND token < 9223372036854775807 AND expires > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) END
RETURNING token
