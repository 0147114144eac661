-- Marks an invalidation that can't be delivered: it is kept, and doesn't block the others.
-- Parameters: id, why.
UPDATE cacheguard_outbox SET refused = ?2 WHERE id = ?1
