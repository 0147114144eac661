-- How many are to be delivered, for how long the oldest has been, in microseconds, and how many never can be.
SELECT count(*) FILTER (WHERE refused IS NULL),
	coalesce((extract(epoch FROM clock_timestamp() - min(written) FILTER (WHERE refused IS NULL)) * 1000000)::bigint, 0),
	count(refused)
FROM cacheguard_outbox
