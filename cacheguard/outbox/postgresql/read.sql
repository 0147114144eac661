-- The oldest invalidations.
-- Parameter: how many.
SELECT id, kind, cache, name FROM cacheguard_outbox WHERE refused IS NULL ORDER BY id LIMIT $1
