// Package middleware is a shared HTTP cache for chi, net/http's mux and any other router. If
// several clients request the same resource at the same time, from any process, the cache runs the
// handler once and answers all of them with its response.
//
//	pages, err := middleware.New(store, middleware.Options{DefaultTTL: time.Minute})
//	...
//	r.With(pages.Handler).Get("/products/{id}", show)
//	r.With(pages.Invalidates).Post("/products/{id}", save) // a successful change removes the page
//
// # What is shared
//
// By default nothing is cached. A response is shared only if it has a lifetime of its own
// (Cache-Control with max-age or s-maxage, CDN-Cache-Control, Expires), or if an option gives it
// one: [Options.DefaultTTL], NegativeTTL or Heuristic. With these options you promise that these
// routes send every client the same answer, unless a response says otherwise. A response with
// max-age=0 and stale-while-revalidate also has a lifetime, unless it is a 5xx.
//
// The cache follows the rules of RFC 9111 for shared caches. It never shares a response with
// no-store, private or Set-Cookie. (If private or no-cache names fields, the response can be shared
// without these fields.) Further rules apply to requests with Cookie or Authorization, because
// their responses may be for one user.
//
// The key is the URL as it was received, with scheme, host, path and query, and what
// [Options.VaryBy] returns. If a response depends on another field of the request, the handler must
// name the field in Vary. Otherwise one client could choose what other clients get.
//
// # What to know first
//
//   - The cache recognizes users only by Cookie, Authorization, Proxy-Authorization and client
//     certificates. If users are recognized by another field, such as X-Api-Key, name the field in
//     Vary or return its value from [Options.VaryBy], or DefaultTTL shares the pages of one user
//     with all.
//   - While other clients may get the response, the handler writes to memory, up to
//     [Options.MaxBody]. If its own client is gone, Write and Flush return no error. The handler's
//     context ends when the last waiting client in its process has left.
//   - If the response turns out not to be shareable, the waiting requests run the handler
//     themselves, in parallel. The cache remembers this for [Options.HitForMiss].
//   - A 5xx without a lifetime goes only to the client whose request ran the handler. The waiting
//     requests get one more try together. An error with max-age is shared: set Cache-Control only
//     when the page is ready.
//   - Anybody can send a POST. So the invalidations by requests have a limit; [Cache.Purge] and
//     the other purge methods have none.
//   - Header fields that are set in front of the cache are not stored. A layer that chooses a form
//     of the response by a request field, such as compression, belongs behind the cache, and must
//     name the field in Vary every time.
//
// In the repository, docs/http.md has recipes and the reasons for which a response is not stored,
// and docs/middleware.md has the rules in detail: requests that identify their user, errors,
// readers of a response that is still being made, ranges, keys, variants, and the order of
// middlewares.
package middleware

// The files: directives.go, request.go, freshness.go, cacheable.go, conditional.go, vary.go,
// key.go, shape.go, cookies.go, variants.go, tags.go, budget.go and update.go make decisions and do
// nothing else. cache.go and exchange.go lead a request through the cache. run.go, recorder.go and
// revalidate.go run the handler, and writer.go and outflow.go send its response to its own client.
// backlog.go limits the memory for slow clients, and turns.go the number of handlers that run for
// one client only. serve.go answers with a stored response, and codec.go defines its form in the
// store. partial.go and partrecorder.go store parts. change.go handles unsafe methods, and post.go
// stores the response to a POST for GET. purge.go has the purge methods, and purged.go remembers
// the purges of this process. Package cacheguard provides leases, waiting, stale windows and tiers.
