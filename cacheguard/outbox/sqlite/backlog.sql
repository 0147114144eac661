-- Returns how many invalidations wait for delivery, for how many microseconds the oldest has
-- waited, and how many can never be delivered.
SELECT count(*) FILTER (WHERE refused IS NULL),
	coalesce(max(CAST(round((julianday('now') - 2440587.5) * 86400000000) AS INTEGER) - min(written) FILTER (WHERE refused IS NULL), 0), 0),
	count(refused)
FROM cacheguard_outbox
