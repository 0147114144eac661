-- Gives a lock back, and sends a notification if somebody waits for one. (While a transaction with
-- a notification commits, all others with one have to wait.) Returns whether it was sent. No row:
-- the owner is not the last one that had the lock. The row stays, for the sake of its token.
-- Parameters: name, owner, channel.
WITH freed AS (
	UPDATE cacheguard_locks SET expires = 'epoch'
	WHERE name = $1::bytea AND owner = $2::bytea
	RETURNING wanted
)
SELECT wanted, CASE WHEN wanted THEN pg_notify($3::text, encode($1::bytea, 'hex'))::text END FROM freed
