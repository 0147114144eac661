-- Keeps an invalidation that can't be delivered, out of the others' way.
-- Parameters: id, why.
UPDATE cacheguard_outbox SET refused = $2::text WHERE id = $1
