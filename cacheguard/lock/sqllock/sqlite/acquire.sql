-- Takes the lock if nobody has it and there is a larger token. No row: somebody has it,
-- or there is no larger token: see look.sql.
-- Parameters: name, owner, lease in milliseconds.
--
-- The clock is SQLite's, read after the statement has got the right to write. In this form every
-- version gives milliseconds.
--
-- An owner that has the lock gets it again, with the same token: a reply can be lost. An owner that has given it back
-- does not: this is a late copy of its request.
INSERT INTO cacheguard_locks AS l (name, owner, token, expires)
VALUES (?1, ?2, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000,
	CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + ?3)
ON CONFLICT (name) DO UPDATE SET
	owner = excluded.owner,
	token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE max(l.token + 1, excluded.token) END,
	expires = excluded.expires
WHERE CASE WHEN l.owner = excluded.owner THEN l.expires > 0
	ELSE l.expires <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
		AND typeof(l.token) = 'integer' AND l.token < 9223372036854775807 END
RETURNING true, token, 0, false
