-- Removes what was delivered, by a list of ids: in a range of ids a row may have been committed in
-- the meantime.
-- Parameter: ids as a JSON array.
DELETE FROM cacheguard_outbox WHERE id IN (SELECT n.id::bigint FROM json_array_elements_text($1::text::json) AS n (id))
