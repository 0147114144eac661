-- Gives a lock back. No row: the owner is not the last one that had the lock. The row stays, for
-- the sake of its token.
-- Parameters: name, owner.
UPDATE cacheguard_locks SET expires = 0 WHERE name = ?1 AND owner = ?2 RETURNING false, 0
