-- The newest invalidation.
SELECT coalesce(max(id), 0) FROM cacheguard_outbox
