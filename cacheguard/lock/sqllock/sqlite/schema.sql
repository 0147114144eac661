-- The table of locks.
CREATE TABLE IF NOT EXISTS cacheguard_locks (
	name    BLOB    NOT NULL PRIMARY KEY,
	owner   BLOB    NOT NULL, -- who has the lock, or had it last: one random token for each acquisition
	token   INTEGER NOT NULL, -- fencing token of that acquisition
	expires INTEGER NOT NULL  -- when the lock ends unless it is renewed, in milliseconds since 1970; 0 once it was given back
) WITHOUT ROWID
