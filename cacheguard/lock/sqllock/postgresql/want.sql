-- Asks for a notification when the lock is given back. No row: it is not held any more, or somebody else has asked.
-- Parameter: name.
UPDATE cacheguard_locks SET wanted = true
WHERE name = $1::bytea AND NOT wanted AND expires > clock_timestamp()
RETURNING 1
