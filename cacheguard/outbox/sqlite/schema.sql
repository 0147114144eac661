-- The invalidations that are to be delivered.
CREATE TABLE IF NOT EXISTS cacheguard_outbox (
	id      INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, -- never one that was there already
	kind    TEXT    NOT NULL CHECK (kind IN ('key', 'stale-key', 'tag', 'stale-tag', 'all')),
	cache   TEXT    NOT NULL, -- the name of the cache
	name    TEXT    NOT NULL DEFAULT '', -- of the key or the tag
	written INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000000) AS INTEGER)), -- microseconds since 1970
	refused TEXT -- why it can't be delivered
)
