-- Removes what was delivered.
-- Parameter: ids as a JSON array.
DELETE FROM cacheguard_outbox WHERE id IN (SELECT value FROM json_each(?1))
