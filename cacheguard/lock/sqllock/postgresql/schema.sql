-- The table of locks. Rows change in place (HOT updates) as long as their page has room, which the fillfactor leaves.
CREATE TABLE IF NOT EXISTS cacheguard_locks (
	name    bytea       NOT NULL PRIMARY KEY,
	owner   bytea       NOT NULL, -- who has the lock, or had it last: one random token for each acquisition
	token   bigint      NOT NULL, -- fencing token of that acquisition
	expires timestamptz NOT NULL, -- when the lock ends unless it is renewed; 'epoch' once it was given back
	wanted  boolean     NOT NULL DEFAULT false -- somebody waits for a notification
) WITH (fillfactor = 70)
