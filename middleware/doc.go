// Package middleware is a shared HTTP cache for chi, net/http's mux and any other router. It runs a
// handler once for all who ask for the same resource at the same time, in the whole fleet, and
// answers the others with what came of it.
//
//	pages, err := middleware.New(store, middleware.Options{DefaultTTL: time.Minute})
//	...
//	r.With(pages.Handler).Get("/catalog", catalog)
//
// By default nothing is cached. A response is shared only if it has a lifetime of its own
// (Cache-Control with max-age or s-maxage, CDN-Cache-Control, Expires), or if Options.DefaultTTL
// gives it one. With DefaultTTL you promise that these routes answer every client alike, unless a
// response says otherwise. stale-while-revalidate beside max-age=0 is a lifetime, too, but not for
// a 5xx.
//
// # Who asks
//
// DefaultTTL and Heuristic never apply to a request with Cookie or Authorization, and such a
// request never gets what is fresh by them. To have a page shared among users, let its handler say
// so: a lifetime (max-age, s-maxage, Expires) or public; with Authorization it takes public,
// s-maxage or must-revalidate (RFC 9111, section 3.5). Vary: Cookie gives each user a copy of their
// own. Cookies that mean nothing to the pages, such as those of consent and analytics, can be named
// in Options.IgnoreCookies: then a request that has no others counts as one without Cookie.
//
// A TLS client certificate, verified or not, and Proxy-Authorization count as Authorization does.
// The cache knows users by these and by Cookie alone. It doesn't know an address, or a field such
// as X-Api-Key, X-Forwarded-User, DPoP or the token of a load balancer (X-Amzn-Oidc-Data,
// X-Goog-Iap-Jwt-Assertion). With DefaultTTL or Heuristic a page for one of those users is shared
// with all, unless the handler says private, Vary names the field, or Options.VaryBy returns it.
//
// With Vary: Cookie there is one copy for each value of Cookie, and whoever sends that value gets
// it, also after a logout. private="X-User" lets the response be shared without that field; private
// alone doesn't let it.
//
// What was made for a request that says who asks is validated by its ETag alone, for two users'
// pages can have any dates. An ETag has to tell two users' pages apart. A 304 with another ETag
// than the one asked about counts for nothing.
//
// An error is nobody else's. If a handler answers 5xx without a freshness of its own, those who
// wait for it get the status through Options.Error, and nothing of its header or body. A handler
// may fail because of what its client has sent, so they have one more try among them: one of those
// who wait runs the handler, and the others wait for that. If it fails again, all get its status.
// So a failing origin has one request at a time for each resource, and a burst costs it two runs
// and not as many as wait (in a fleet a process that hears of the first failure when the second run
// is over adds one). The same holds for a panic and for a response that is not whole.
//
// But an error that has a freshness of its own is everybody's. A handler that sets max-age first
// and calls http.Error later shares the error for that long: set Cache-Control when the page is
// there, or remove it before the error.
//
// # What is never shared
//
// The cache follows RFC 9111 as a shared one: responses that are private or no-store, that answer a
// request with Authorization (unless they are public, must-revalidate or have s-maxage), that vary
// by "*". Beyond the RFC it never shares a response with Set-Cookie. The cache learns this only
// when the handler writes its header. Requests that wait by then run the handler themselves at
// once, in parallel. For Options.HitForMiss the fleet remembers it, so that no request waits in
// vain. The first response that can be shared ends that.
//
// What a client asks for costs at most one run in each slot of Options.MaxLoads, and for GET and
// HEAD requests that can't be answered from the cache in a share of slots beside it. No client
// holds a slot by reading slowly: a handler that waits for its own client is not counted, and takes
// a place in that share again before it goes on. If a client asks for something newer than what is
// stored and fresh, and gets what can't be shared, or an error that only the options make fresh,
// then what is stored stays, and others are answered with it. A 4xx without freshness says
// something of its request, not of the resource: it is not remembered. A response below 400 that
// can't be shared is, also a 301, 302, 303, 307, 206 or 304 that says nothing of freshness.
//
// # What a handler notices
//
// It runs on the goroutine that the server called. As long as others may get its response it writes
// to memory, up to MaxBody, and never waits for a client: its own client reads from there, on a
// goroutine that only this client can block, and ServeHTTP returns when both are done. So a Write
// or Flush returns no error of that client. From when the response is for its own client only, the
// handler writes to that client.
//
// Clients that wait in the same process read a response while it is made, if it has a lifetime of
// its own and nothing keeps it from being shared: from its first Flush, or, when it has a
// Content-Length, from the first bytes that its own client gets. All of them read one buffer, and a
// slow one costs no more than that. For a client that reads slowly, or not at all, its response is
// kept in memory after the handler has returned: Options.MaxBacklog bounds that for all clients
// together.
//
// If the response breaks off (the handler panics, writes less than its Content-Length, calls
// WriteHeader with an error when it has begun to write, flushes a body that grows above MaxBody, or
// has no Content-Length and returns after its context has ended), the connections of those who read
// it are aborted and nothing is stored. Other processes get the response when it is whole. With
// StrongReads all who wait do.
//
// As soon as the handler has written a head with Vary, requests in the same process for other
// variants go on to their own runs. Other processes learn the Vary with the whole response; see
// Keys and variants for a page that is stored, also if it is stale.
//
// Panics reach whoever recovers them, with the handler's frames on the stack, and if the second try
// fails, too, who waited gets a 500; after http.ErrAbortHandler, or when the response was not
// whole, a 502. When its client leaves while others wait it runs on for them; its context ends when
// the last of them in its process has left; then another process runs its own. So clients that
// leave before the end of each run and ask again, in one process, can have a client of another
// process wait for several runs: for Options.WaitTimeout at most. Once the handler has returned,
// what it has made is stored, whoever has left. http.ResponseController works. What is flushed goes
// to the client at once. A response that is fresh only by the options is no longer recorded when
// something is written after a flush, or when its handler still runs 50 ms after one (but see
// Options.RecordFlushed). No response is when it is an event stream, when its connection is taken
// over, or when its body is above MaxBody.
//
// If a handler writes nothing and sets no lifetime, its response is passed on unchanged, because
// middleware in front may turn it into an error. If such a handler panics, only its own client sees
// it, even if waiting clients were given a stale response.
//
// The fields by which clients ask for less than the whole (If-None-Match, If-Modified-Since) are
// taken out of the request for the handler, and answered here; if there is a stored response that
// has a validator, the request asks for news about that. Requests with a body, with If-Match,
// If-Unmodified-Since or Upgrade, and other methods go to the handler as they are, and so do HEAD
// and Range when nothing that is stored can answer them.
//
// A request whose Connection names fields goes to the handler as it is, too. A proxy behind the
// cache removes these fields (RFC 9110, section 7.6.1), so that its response can be another one
// than this request's key and Vary say. So does a request with a Host field that is another one
// than Request.Host, which HTTP/2 allows.
//
// A range is served from a complete response, or from a part. If a handler answers a request for
// one range with a 206 that a 200 with its fields could be stored as, its part is stored beside the
// whole responses, and never in place of one. It takes a Content-Range with all three numbers, a
// body of just this length, up to MaxBody, no Content-Encoding, and a request that doesn't say who
// asks. A part for If-Range is stored only if it joins others, for it may lack fields. Parts are
// put together under one strong ETag, up to 16 with gaps between them; together they have MaxBody
// at most. A part that doesn't fit takes the others' place only if they aren't larger. When they
// are all there is, they are stored as the whole response. Requests for ranges never wait for each
// other's handlers: while one stores a part, others of the same resource are answered without
// storing theirs, and so are all beyond an eighth of MaxLoads.
//
// There is no option for this, for a part goes to those alone who would get a whole response with
// its fields. It relies on handlers whose ranges are right, such as http.ServeContent, and whose
// strong ETags stand for one text each. A 206 whose body is not as long as its Content-Range says
// goes to its own client alone: nobody knows which bytes it has. For a whole response a handler is
// never asked for the rest alone, for every miss would cost a look-up of parts.
//
// With a stale window (stale-while-revalidate or the option) the handler runs in the background,
// with a copy of the request that has the values of its context, chi's route included, and no
// client: what it flushes goes nowhere.
//
// # Keys and variants
//
// The key is what a handler can read of a request: the URL as it was received, with scheme, Host
// (in its spelling, with its port), path and query, the name in the TLS handshake where that is not
// the one in Host, and what Options.VaryBy says. Options.TrustForwarded adds a proxy's fields. GET
// and HEAD have the same key. Requests that say who asks are answered from what is stored for all,
// and coalesce among themselves. No other field of the request is in the key: what a handler's
// response depends on besides, it must name in Vary, or one client could choose what others get
// (web cache poisoning). X-Forwarded-Host is such a field unless Options.TrustForwarded names it.
//
// Of one resource several responses can be stored, one for each value of the fields that Vary
// names. Two requests have the same value if a handler reads the same: as many lines, in the same
// order and spelling.
//
// The first of these is found by the URL, and the others by its Vary. When they are stale, requests
// for each variant share one run for it in the fleet, and no request waits for another variant's.
// The first one is renewed by its own requests alone: the others use its Vary until Options.Keep
// and the stale windows end. Then nothing is stored by which the Vary is known, and requests of all
// variants wait for one run: in its process for its head, in other processes for its end. This
// costs a variant that nobody asks for in the first process at most the time from head to end; to
// tell processes of each head would cost a command for every response with Vary. So a page that
// varies is best sent with an ETag.
//
// Requests that mean the same to you can share more, by Options.Hosts, IgnoreQuery, KeepQuery,
// Normalize and Shape. These change the request that the handler gets, so that a client can't put
// into a response what its key doesn't have. With Shape the key also has what http.ServeMux or chi
// in front of the cache has taken from the path (Request.PathValue, chi.URLParam), for Shape can't
// change that; put the cache in front of the router to have requests share by the shaped path. What
// else somebody in front has derived from the request as it was, VaryBy has to say. Purge finds all
// spellings of a URL.
//
// # Changes
//
// A request with POST, PUT, PATCH, DELETE or an unknown method that succeeds removes the stored
// responses of its own URL, where Handler or Invalidates stands in front of its handler:
//
//	r.With(pages.Handler).Get("/products/{id}", show)
//	r.With(pages.Invalidates).Post("/products/{id}", save)
//
// Anybody can send such a request, so these changes have a budget: 1,000 different URLs at once for
// each process, and one more each second. Beyond it a URL's responses are removed as the request
// itself would get them; other spellings and variants of it stay until they are stale. What your
// services invalidate with Purge and its like has no such limit. A handler that answers POST as it
// answers GET lets anybody remove its pages: register it for GET alone.
//
// Options.StorePosts has the response to a POST stored for GET, if it says so itself (RFC 9110,
// section 9.3.3).
//
// # Where it stands among other middlewares
//
//	r.Use(middleware.RequestID, middleware.Recoverer, cors.Handler) // what says something of its own to each client
//	r.Use(sessions)                                               // what finds out who asks: Options.VaryBy can tell the cache
//	r.With(pages.Handler, compress).Get("/products", list)        // the cache, and behind it what is stored: compressed, too
//	r.With(pages.Invalidates).Post("/products", add)              // a route that only changes something
//
// What is in the header before the cache is called is not stored, and a field of the same name in
// the handler's response takes its place. Vary is an exception, for somebody in front may choose
// between pages; what CORS adds to it (Origin) has each Origin get a copy of its own unless
// Options.IgnoreVary names it.
//
// Whatever chooses by a field has to name it in Vary each time. chi's Compress doesn't when it
// doesn't compress: behind the cache a client without Accept-Encoding then has the plain page
// stored for all. Put it in front of the cache, or have a middleware between the two add Vary:
// Accept-Encoding.
//
// # Why a response is not stored
//
// Cache-Status has "stored" if the response is stored, as far as that is known when its head is
// sent: if it has a Content-Length, or is complete by then. Otherwise its parameter "detail" says
// why not. Observers are told the same at the end, as Event.Reason of EventUnstored, and count it.
// The words, and what to do:
//
//	no freshness       set Cache-Control: max-age=60 in the handler, or Options.DefaultTTL for all of them
//	stale              max-age=0, or an Age or Date that is too old: give it a lifetime, or an ETag to be asked about
//	no-store, private  that is what the handler says; private means: for this client only
//	no-cache           add an ETag: then it is stored and asked about each time
//	Set-Cookie         set cookies on other routes, or in a middleware in front of the cache
//	Authorization      (or Proxy-Authorization, or a certificate) if the page is the same for everybody, say public or s-maxage
//	Cookie             if the page is the same for everybody, say public, s-maxage or max-age, or Vary: Cookie
//	Vary: *            name the fields on which the page depends
//	status             it is never stored (304, 428, 429, 431, 511; a 206 that nobody asked for)
//	must-understand    the status isn't known here: leave the directive out
//	too large          raise Options.MaxBody
//	flushed            it is fresh only by the options: give it a lifetime, don't flush, or set Options.RecordFlushed
//	event stream       it is never stored
//	taken over         neither is what Hijack was called for
//	incomplete         the handler panicked, wrote less than its Content-Length, returned without one after its context had ended, or
//	                   called http.Error or WriteHeader with an error when it had begun to write: find out about errors first
//	too many tags      at most 51 in Cache-Tag and Surrogate-Key
//	too many variants  see Options.Normalize, IgnoreVary and MaxVariants
//	store              Redis can't be used: the Logger says why
//	switch             Options.Switch is off, or in shadow
//	purged             this process has purged it while the handler ran; what other processes purge meanwhile is not known here
//	method             the answer to a HEAD
//	range              an answer to Range that is no part which can be stored, see above; or another part is being stored
//	bypass             a request with a body, with If-Match or If-Unmodified-Since, whose Connection names fields, with two hosts, or
//	                   for a Host that is none; or the cache is closed
//	request: no-store  the client says so
//	alone              the request waited for WaitTimeout, or for a response that was for others
//
// # Where the files are
//
// directives.go, request.go, freshness.go, cacheable.go, conditional.go, vary.go, key.go, shape.go,
// cookies.go, variants.go, tags.go, budget.go and update.go decide, and do nothing else; cache.go
// and exchange.go are the way of a request, run.go, recorder.go and revalidate.go the handler's
// run, writer.go and outflow.go what its client gets of it, backlog.go what is kept for slow
// clients, turns.go how many run that nobody else gets, serve.go what all others get, codec.go what
// stands in the store, partial.go and partrecorder.go have the parts, change.go what unsafe methods
// do, post.go what a POST brings for GET, purge.go what users do, purged.go what this process knows
// of that. The leases, the waiting, the stale windows and the tiers are those of package
// cacheguard.
package middleware
