-- Takes a lock over from its holder, who hears of it at the next renewal. No row: that one isn't the holder.
-- Parameters: name, owner, lease in microseconds, token of the holder.
UPDATE cacheguard_locks SET
	owner = $2::bytea,
	token = CASE WHEN owner = $2::bytea THEN token -- a reply was lost
		ELSE greatest(token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) END,
	expires = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE name = $1::bytea
	AND CASE WHEN owner = $2::bytea THEN expires > 'epoch' ELSE token = $4::bigint AND expires > clock_timestamp() END
RETURNING token
