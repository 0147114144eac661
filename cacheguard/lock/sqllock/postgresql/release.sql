-- Gives a lock back, and says so to those who wait, if there are any: a transaction that notifies keeps all others that
-- do so waiting while it commits. Returns whether it was said. No row: the lock is another's, or nobody's. The row stays,
-- for the sake of its token.
-- Parameters: name, owner, channel.
WITH freed AS (
	UPDATE cacheguard_locks SET expires = 'epoch'
	WHERE name = $1::bytea AND owner = $2::bytea
	RETURNING wanted
)
SELECT wanted, CASE WHEN wanted THEN pg_notify($3::text, encode($1::bytea, 'hex'))::text END FROM freed
