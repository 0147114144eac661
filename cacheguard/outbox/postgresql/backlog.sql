-- Returns how many invalidations wait for delivery, for how many microseconds the oldest has
-- waited, and how many can never be delivered.
SELECT count(*) FILTER (WHERE refused IS NULL),
	coalesce((extract(epoch FROM clock_timestamp() - min(written) FILTER (WHERE refused IS NULL)) * 1000000)::bigint, 0),
	count(refused)
FROM cacheguard_outbox
