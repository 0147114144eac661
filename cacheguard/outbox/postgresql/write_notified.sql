-- Writes invalidations, and has the relay be told when they are committed.
-- Parameters: kind, cache, names as a JSON array, channel.
WITH written AS (
	INSERT INTO cacheguard_outbox (kind, cache, name)
	SELECT $1::text, $2::text, n.name FROM json_array_elements_text($3::text::json) WITH ORDINALITY AS n (name, nth)
	ORDER BY n.nth
)
SELECT pg_notify($4::text, '')
