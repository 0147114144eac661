-- Returns whether an invalidation that is no newer than this id still waits for delivery.
-- Parameter: id.
SELECT EXISTS (SELECT 1 FROM cacheguard_outbox WHERE refused IS NULL AND id <= $1)
