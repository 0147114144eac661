// Package statuspage is an HTTP handler that shows what the caches of a process are doing, for
// people who have to know now. Mount it beside pprof. It serves the same data as JSON.
//
//	page := statuspage.New(statuspage.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", Observer: page})
//	admin.Handle("/debug/cacheguard/", page)
//
// If the cache has another observer, give the cache both: cacheguard.Observers(metrics, page).
// Caches of package middleware take the page in the same way.
//
// For each cache the page shows its switch, what the store can't be used for and why, whether
// messages of the store arrive, open circuit breakers, and the results of calls. It shows the
// running loads with their age and the number of callers that wait for them, loads that wait for a
// slot, and changes that the store has not been told of. It also shows how consistent an audit
// found the answers to be, and the keys that are hit most. For all caches together it shows the
// slowest loads of the last minutes, and the latest problems with their causes, which include loads
// of Options.SlowLoad or more. docs/operations.md says what to do.
//
// # Who may see it
//
// Everybody who can reach the handler sees the page. The handler changes nothing and shows no
// values. Of a key the page shows only the first 16 digits of its SHA-256 (printf %s KEY |
// sha256sum; redisstore's command inspect finds the key with -find), unless Options.Keys is set.
// Errors are shown unchanged, with everything that the origin's driver put into them. So mount the
// page where pprof would be, behind your own access control.
//
// # What it costs
//
// A hit of the local tier costs nothing more: the cache counts these hits itself. About 20 random
// hits a second of each cache are examined more closely to find the keys that are hit most. Any
// other hit costs a counter. Memory is limited, whatever the number of keys.
package statuspage
