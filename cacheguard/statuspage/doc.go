// Package statuspage is an HTTP handler that shows operators what the caches of a process are doing
// now. Mount it beside pprof. It serves the same data as JSON.
//
//	page := statuspage.New(statuspage.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", Observer: page})
//	admin.Handle("/debug/cacheguard/", page)
//
// If the cache has another observer, give the cache both: cacheguard.Observers(metrics, page).
// Caches of package middleware take the page in the same way.
//
// For each cache the page shows its switch, whether messages of the store arrive, open circuit
// breakers, and the results of calls. For each use of the store that fails, it shows the reason,
// and when the use first and last failed. It shows the running loads with their age and the number
// of callers that wait for them, loads that wait for a slot, and changes that the store doesn't
// have yet. It also shows the consistency that an audit has measured, and the keys that are hit
// most. For all caches together it shows the slowest loads of the last minutes, and the latest
// problems with their causes. A load that takes Options.SlowLoad or longer is a problem, too.
// docs/operations.md explains each problem and its remedy.
//
// # Who may see it
//
// Everybody who can reach the handler sees the page. The handler changes nothing and shows no
// values. Unless Options.Keys is set, the page shows only the first 16 digits of the key's SHA-256
// in place of a key. To compute them, use printf %s KEY | sha256sum. To find the key, use
// redisstore's command inspect with -find. The first 300 bytes of an error are shown unchanged,
// with what the origin's driver has put into them. So mount the page where pprof would be, behind
// your own access control.
//
// # What it costs
//
// A hit, also one of the local tier, costs one increment of a counter. About 20 random hits per
// second of each cache cost more, because the page uses them to find the keys that are hit most.
// Memory is limited for any number of keys.
package statuspage
