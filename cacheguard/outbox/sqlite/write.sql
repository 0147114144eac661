-- Writes invalidations.
-- Parameters: kind, cache, names as a JSON array.
INSERT INTO cacheguard_outbox (kind, cache, name)
SELECT ?1, ?2, value FROM json_each(?3) ORDER BY key
