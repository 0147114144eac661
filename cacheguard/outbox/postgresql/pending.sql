-- Whether some are left that are no newer.
-- Parameter: id.
SELECT EXISTS (SELECT 1 FROM cacheguard_outbox WHERE refused IS NULL AND id <= $1)
