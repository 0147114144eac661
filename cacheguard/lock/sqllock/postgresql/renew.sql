-- Gives a lock more time. No row: it is another's, or nobody's.
-- Parameters: name, owner, lease in microseconds.
UPDATE cacheguard_locks SET expires = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE name = $1::bytea AND owner = $2::bytea AND expires > 'epoch'
RETURNING 1
