// Package statuspage shows what the caches of a process are doing, to somebody who has to know now:
// an HTTP handler to mount beside pprof, and the same as JSON.
//
//	page := statuspage.New(statuspage.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", Observer: page})
//	admin.Handle("/debug/cacheguard/", page)
//
// With another observer, give the cache both: cacheguard.Observers(metrics, page). For caches of
// package middleware it is the same.
//
// Of each cache the page has its switch, what its store can't be used for and why, whether messages
// of the store arrive, open circuit breakers, what calls were answered with, the loads that run,
// with their age and who waits for them, what waits for a slot, changes that the store has not been
// told of, how consistent its answers were found to be by an audit, and the keys that are hit most.
// Of all together it has the slowest loads of the last minutes, and what went wrong last, and why,
// loads of Options.SlowLoad or more among it. docs/operations.md says what to do.
//
// # Who may see it
//
// Whoever reaches the handler. It changes nothing, and shows no values. Keys are shown by the first
// 16 digits of their SHA-256 (printf %s KEY | sha256sum; redisstore's command inspect finds it by
// -find) unless Options.Keys allows more. Errors are shown as they are, with what the origin's
// driver put into them: mount the page where pprof would be, behind your own access control.
//
// # What it costs
//
// A hit of the local tier costs nothing more: such hits are counted by the cache, and some 20 a
// second of each cache are looked at more closely, at random, to find the keys that are hit most.
// Another hit costs a counter. Memory is bounded, whatever the number of keys.
package statuspage
