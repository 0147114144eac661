-- Gives a lock more time. No row: the owner is not the last one that had the lock, or has given it
-- back.
-- Parameters: name, owner, lease in microseconds.
UPDATE cacheguard_locks SET expires = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE name = $1::bytea AND owner = $2::bytea AND expires > 'epoch'
RETURNING 1
