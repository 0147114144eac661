-- How many are to be delivered, for how long the oldest has been, in microseconds, and how many never can be.
SELECT count(*) FILTER (WHERE refused IS NULL),
	coalesce(max(CAST(round((julianday('now') - 2440587.5) * 86400000000) AS INTEGER) - min(written) FILTER (WHERE refused IS NULL), 0), 0),
	count(refused)
FROM cacheguard_outbox
