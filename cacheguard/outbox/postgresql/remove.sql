-- Removes what was delivered: by their ids, for among them may be one that was committed meanwhile.
-- Parameter: ids as a JSON array.
DELETE FROM cacheguard_outbox WHERE id IN (SELECT n.id::bigint FROM json_array_elements_text($1::text::json) AS n (id))
