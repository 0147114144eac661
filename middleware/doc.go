// Package middleware is a shared HTTP cache for chi, net/http's mux and any other router. It runs a handler once for all
// who ask for the same resource at the same time, in the whole fleet, and answers the others with what came of it.
//
//	pages, err := middleware.New(store, middleware.Options{DefaultTTL: time.Minute})
//	...
//	r.With(pages.Handler).Get("/catalog", catalog)
//
// Nothing is protected that doesn't say so: a response is shared only if it has a freshness of its own (Cache-Control
// with max-age or s-maxage, CDN-Cache-Control, Expires), or if Options.DefaultTTL gives it one. DefaultTTL is a promise of
// yours: what these routes answer is the same for everybody, unless a response says otherwise.
//
// # What is never shared
//
// The cache follows RFC 9111 as a shared one: responses that are private or no-store, that answer a request with
// Authorization (unless they are public, must-revalidate or have s-maxage), that vary by "*". Beyond the RFC it never
// shares a response with Set-Cookie. That a response is one of these is known only when the handler writes its head, and
// by then others may wait: they run the handler themselves at once, in parallel, and for Options.HitForMiss the fleet
// remembers it, so that nobody waits for nothing. The first response that can be shared ends that.
//
// # What a handler notices
//
// It runs on the goroutine that the server called, and writes to its client while a copy is kept. Panics reach whoever
// recovers them, with the handler's frames on the stack, and who waited for it gets a 500; after http.ErrAbortHandler, or
// when it wrote less than its Content-Length, a 502. When its client leaves while others wait it runs on for them; its
// context ends when the last of them in its process has left; then another process runs its own. A client that reads
// slowly holds up nobody else. http.ResponseController works. What is flushed goes to the client at once; a response is no
// longer recorded when something is written after a flush, when its handler still runs 50 ms after one (but see
// Options.RecordFlushed), when it is an event stream, when its connection is taken over, or when its body is above MaxBody.
// A handler that writes nothing and says nothing about freshness is left as it is: somebody in front may make an error of
// it. Its panic is its own client's, also when others get something stale instead.
//
// The fields by which clients ask for less than the whole (If-None-Match, If-Modified-Since) are taken out of the request
// for the handler, and answered here; if there is a stored response that has a validator, the request asks for news about
// that. Requests with a body, with If-Match, If-Unmodified-Since or Upgrade, and other methods go to the handler as they
// are, and so do HEAD and Range when nothing that is stored can answer them. A range is served from a complete response;
// partial ones are not stored.
//
// With a stale window (stale-while-revalidate or the option) the handler runs in the background, with a copy of the
// request that has the values of its context, chi's route included, and no client: what it flushes goes nowhere.
//
// # Keys and variants
//
// The key is the URL as it was received, with scheme, Host (and its port) and query, and what Options.VaryBy says. GET and
// HEAD have the same. Requests with Authorization are answered from what is stored for all, and coalesce among themselves. No other field of the request is in it: what a handler's response depends on besides, it must name in Vary, or
// one client could choose what others get (web cache poisoning). X-Forwarded-Host is such a field, unless
// Options.TrustForwarded names it.
//
// Of one resource several responses can be stored, one for each value of the fields that Vary names. The values of Accept,
// Accept-Encoding and Accept-Language are compared without regard to order, case and space.
//
// # Where the files are
//
// directives.go, request.go, freshness.go, cacheable.go, conditional.go, vary.go, key.go, tags.go and update.go decide, and
// do nothing else; cache.go and exchange.go are the way of a request, run.go, recorder.go and revalidate.go the handler's run,
// writer.go and outflow.go what its client gets of it, serve.go what all others get, codec.go what stands in the store,
// change.go what unsafe methods do, purge.go what users do. The leases, the waiting, the stale windows and the tiers are those of package cacheguard.
package middleware
