-- Takes the lock if nobody has it, or says how it is held. No row: somebody was faster.
-- Parameters: name, owner, lease in microseconds.
--
-- What is held is found out in the statement's snapshot, so that asking for it neither writes nor locks anything. What
-- seems free is decided under the lock of the row, on its newest version, whatever the snapshot said. The clock is
-- asked again there, for there may have been a wait; now() would be the time when the transaction began.
--
-- An owner that has the lock gets it again, with the same token: a reply can be lost. An owner that has given it back
-- does not: this is a late copy of its request.
WITH held AS (
	SELECT token, expires, wanted FROM cacheguard_locks
	WHERE name = $1::bytea AND owner <> $2::bytea AND expires > clock_timestamp()
), taken AS (
	INSERT INTO cacheguard_locks AS l (name, owner, token, expires)
	SELECT $1::bytea, $2::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
		clock_timestamp() + $3::bigint * interval '1 microsecond'
	WHERE NOT EXISTS (SELECT FROM held)
	ON CONFLICT (name) DO UPDATE SET
		owner = excluded.owner,
		token = CASE WHEN l.owner = excluded.owner THEN l.token
			ELSE greatest(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) END,
		expires = clock_timestamp() + $3::bigint * interval '1 microsecond',
		wanted = l.owner = excluded.owner AND l.wanted
	WHERE CASE WHEN l.owner = excluded.owner THEN l.expires > 'epoch' ELSE l.expires <= clock_timestamp() END
	RETURNING token
)
SELECT true, token, 0::bigint, false FROM taken
UNION ALL
SELECT false, token, (extract(epoch FROM expires - clock_timestamp()) * 1000000)::bigint, wanted FROM held
