-- Writes invalidations.
-- Parameters: kind, cache, names as a JSON array.
INSERT INTO cacheguard_outbox (kind, cache, name)
SELECT $1::text, $2::text, n.name FROM json_array_elements_text($3::text::json) WITH ORDINALITY AS n (name, nth)
ORDER BY n.nth
