// Package middleware is a shared HTTP cache for chi, net/http's mux and any other router. If
// several clients request the same resource at the same time, from any process, the cache runs the
// handler once and answers all of them with its response.
//
//	pages, err := middleware.New(store, middleware.Options{DefaultTTL: time.Minute})
//	...
//	r.With(pages.Handler).Get("/catalog", catalog)
//
// By default nothing is cached. A response is shared only if it has a lifetime of its own
// (Cache-Control with max-age or s-maxage, CDN-Cache-Control, Expires), or if an option gives it
// one: [Options.DefaultTTL], NegativeTTL or Heuristic. With these options you promise that these
// routes send every client the same answer, unless a response says otherwise. A response with
// max-age=0 and stale-while-revalidate also has a lifetime, unless it is a 5xx.
//
// # Who asks
//
// [Options.DefaultTTL] and [Options.Heuristic] don't apply to the response to a request with Cookie
// or Authorization, and a response that is fresh only because of these options isn't given to such
// a request. There are two exceptions: the response says public, or its Vary names each of these
// fields that the request has. To share a page among users, let its handler say so: with a
// lifetime (max-age, s-maxage, Expires) or public. For requests with Authorization the response
// needs public, s-maxage or must-revalidate (RFC 9111, section 3.5). Vary: Cookie gives each user a
// copy of their own. In [Options.IgnoreCookies], name the cookies that mean nothing to the pages,
// such as those of consent and analytics. A request that has no other cookies is treated as one
// without Cookie.
//
// A TLS client certificate, verified or not, and Proxy-Authorization are treated like
// Authorization. The cache recognizes users by these and by Cookie only. It doesn't recognize a
// user by an address, or by a field such as X-Api-Key, X-Forwarded-User, DPoP or the token of a
// load balancer (X-Amzn-Oidc-Data, X-Goog-Iap-Jwt-Assertion). With DefaultTTL or Heuristic a page
// for a user of this kind is shared with everybody, unless the handler says private, Vary names the
// field, or [Options.VaryBy] returns its value.
//
// With Vary: Cookie there is one copy for each value of Cookie. Every request with that value gets
// the copy, even after a logout. With private="X-User" the response is shared without the field
// X-User. With private alone it isn't shared.
//
// If a request identifies its user by a field that Vary doesn't name, the cache validates its
// response with the handler only by ETag, because a date doesn't tell two users' pages apart. So
// different pages of two users must have different ETags. A 304 with another ETag is ignored.
//
// A 5xx that isn't shared, usually because it has no lifetime, is given only to the client whose
// request ran the handler. Waiting requests never get its header or body. A handler may fail
// because of the fields that its client has sent. So the waiting requests get one more try
// together: one of them runs the handler, and the others wait for this second run. If the second
// run fails, too, the others get only its status, through [Options.Error]. So a failing origin
// gets one request at a time for each resource, and a burst of requests costs the origin two runs,
// not one for each request. In a fleet a process adds one run if it learns of the first failure
// only after the second run is over. A panic and a response that is not whole are treated in the
// same way.
//
// An error response that has its own lifetime is shared. If a handler sets max-age first and calls
// http.Error later, the error is shared for max-age. Set Cache-Control only when the page is ready,
// or remove it before the error.
//
// # What is never shared
//
// The cache follows the rules of RFC 9111 for shared caches. It never shares a response that is
// private or no-store, that varies by "*", or that answers a request with Authorization (unless the
// response is public or must-revalidate or has s-maxage). Beyond the RFC it shares no response with
// Set-Cookie, unless private="Set-Cookie" lets the cache leave the cookie out. The cache learns
// that a response can't be shared only when the handler writes its header. Requests that are
// waiting then run the handler themselves at once, in parallel. All
// processes then remember for the time [Options.HitForMiss] that the resource can't be shared, so
// that no request waits in vain. The first response that can be shared ends this time.
//
// At most [Options.MaxLoads] handlers run at a time for requests that may be answered from the
// cache. Other GET and HEAD requests have additional slots. A slow client occupies no slot: a
// handler that
// waits for its own client gives up its slot, and takes one of the additional slots before it
// continues. A client may ask for a newer response although the stored one is fresh. If the newer
// response can't be shared, or is an error that is fresh only because of the options, the stored
// response stays and is served to other clients. A 4xx that says nothing about freshness says
// something about its request and not about the resource, so it isn't remembered. But a 4xx with
// no-store, private or Set-Cookie is. A response below 400 that can't be shared is remembered, even
// a 301, 302, 303, 307, 206 or 304 that says nothing about freshness.
//
// # What a handler notices
//
// The handler runs on the goroutine on which the server called the cache. While other clients may
// get its response, the handler writes to memory, up to MaxBody, and never waits for a client. A
// second goroutine writes the response to the handler's own client, and only that client can block
// it. ServeHTTP returns when both goroutines are done. So if the connection of that client fails,
// Write and Flush return no error. As soon as the response is for its own client only, the handler
// writes directly to that client.
//
// Clients that wait in the same process can read a response while it is made. The response must
// have its own lifetime or say public, and nothing may prevent it from being shared. The clients
// can read it from its first Flush on. If it has a Content-Length, they can do so when its first
// bytes are
// sent to the handler's own client. All of them read one buffer, so a slow client costs no
// additional memory. For a client that reads slowly, or not at all, the response stays in memory
// after the handler has returned. [Options.MaxBacklog] limits this memory for all clients together.
//
// A response is broken off if the handler panics, writes less than its Content-Length, calls
// WriteHeader with an error after it has begun to write, or flushes a body that grows above
// MaxBody. A response without a Content-Length is also broken off if the handler returns after its
// context has ended. The cache then aborts the connections of the other clients that read it, and
// stores nothing. Other processes get a response only when it is whole. With
// [Options.StrongReads] all waiting clients get it only when it is whole. The same applies to a
// client with HTTP/1.0 if the response has no Content-Length, because that client couldn't tell a
// part from the whole.
//
// As soon as the handler has written a header with Vary, requests in the same process for other
// variants start runs of their own. Other processes learn the Vary when the response is whole. The
// section "Keys and variants" describes pages that are already stored, fresh or stale.
//
// If the handler panics, the panic reaches the middleware in front that recovers it, with the
// handler's frames on the stack. If the second run panics, too, the requests that wait get a 500.
// They get a 502 if the handler panicked with http.ErrAbortHandler, or if the response was not
// whole.
//
// If the handler's client leaves while other requests wait, the handler continues for these
// requests. The handler's context ends when the last waiting client in its process has left. Then
// another process that waits runs the handler. If clients of one process leave before the end of
// each run and ask again, they can make a client of another process wait for several runs, but at
// most for [Options.WaitTimeout]. When the handler has returned, its response is stored, even if
// clients have left.
//
// http.ResponseController works. Flushed bytes are sent to the client at once. If a response is
// fresh only because of the options, the cache stops recording it when the handler writes after a
// flush, or still runs 50 ms after a flush (but see [Options.RecordFlushed]). A response is never
// recorded if it is an event stream, if its connection is taken over, or if its body is larger than
// MaxBody.
//
// If a handler writes nothing and sets no lifetime, its response is passed on unchanged, because
// middleware in front may turn it into an error. If a handler panics while there is a stale
// response to serve, its own client still sees the panic. Only the waiting clients get the stale
// response.
//
// The cache removes conditions (If-None-Match, If-Modified-Since) from the request before the
// handler sees it, and evaluates them itself. If a stored response has a validator, the cache puts
// this validator into the request, so that the handler can answer 304. If the client gets a 304 and
// no other client gets the response, nobody reads the body. Then Write fails with
// http.ErrBodyNotAllowed and the handler's context ends, as soon as the body is larger than MaxBody
// or the client has left.
//
// The cache passes a request on to the handler, with its conditions, if it has a body, If-Match,
// If-Unmodified-Since or Upgrade, or a method other than GET and HEAD. It also passes on a HEAD
// request, and a request with Range, if no stored response can answer it.
//
// The cache also passes on a request whose Connection names fields. A proxy behind the cache
// removes these fields (RFC 9110, section 7.6.1). So the handler's response may not be the right
// one for this request's key and Vary. The cache also passes on a request whose Host field differs
// from Request.Host, which HTTP/2 allows.
//
// A range is served from a complete response, or from a stored part. If a handler answers a request
// for one range with a 206, this part is stored if (a) a 200 with the same fields could be stored,
// (b) the part has a Content-Range with all three numbers, (c) its body has exactly the length that
// these numbers say, and at most MaxBody bytes, (d) it has no Content-Encoding, Content-Digest,
// Content-MD5 or trailer, and isn't flushed, and (e) the request doesn't identify its user and has
// no If-None-Match or If-Modified-Since. The part is stored in addition to complete responses and
// never
// replaces one. A part for a request with If-Range may lack fields, so it is stored only if it can
// be joined with other parts.
//
// Parts with the same strong ETag are joined. There may be up to 16 of them with gaps between them,
// and together they have at most MaxBody. A part that can't be joined with stored parts of the same
// ETag replaces them only if they aren't larger. When the parts make up the whole body, they are
// stored as a complete response. Requests for ranges wait at most 20 ms for each other's handlers.
// While one request stores a part, other parts of the same resource are sent to their clients
// without
// being stored. At a time, at most MaxLoads/8 requests store parts. Further parts are not stored.
//
// Storing parts has no option, because a part is given only to clients that would also get a
// complete response with its fields. It relies on handlers that answer ranges correctly, as
// http.ServeContent does, and that use each strong ETag for one body only. If the body of a 206 is
// not as long as its Content-Range says, it is sent to its own client only, because nobody knows
// which bytes it has. If a client asks for the complete response, the cache never asks the handler
// for the missing parts alone, because then every miss would also cost a look-up of parts.
//
// With a stale window (stale-while-revalidate or the option) the handler runs in the background. It
// gets a copy of the request with the values of its context, including chi's route. This run has no
// client of its own. What the handler flushes is sent only to clients that wait for the response.
//
// # Keys and variants
//
// The key has the parts of a request that a handler usually reads. These are (a) the URL as it was
// received, with scheme, path, query and Host (as it is spelled, with its port), and Request.URL if
// a layer in front has changed it (http.StripPrefix), (b) the name in
// the TLS handshake if it differs from Host, and (c) the string that [Options.VaryBy] returns.
// [Options.TrustForwarded] adds a proxy's fields. GET and HEAD have the same key. Requests that
// identify their user (Cookie, Authorization and so on) can get the responses that are stored for
// all, but wait only for one another. No other field of the request is in the key. If a handler's
// response depends on another field, the handler must name it in Vary, or one client could choose
// what others get (web cache poisoning). X-Forwarded-Host is such a field unless
// Options.TrustForwarded names it.
//
// Several responses of one resource can be stored, one for each value of the fields that Vary
// names. Two requests have the same value if their fields have the same lines, in the same order
// and spelling.
//
// The first stored variant is found by the URL, and the others by the Vary of the first. When
// variants are stale, all requests for one variant share one run in the whole fleet, and no request
// waits for the run of another variant. Only requests for the first variant renew it. Requests for
// the other variants use the first variant's Vary until [Options.Keep] and the stale windows have
// ended. After that the Vary is no longer stored, and requests for all variants wait for one run.
// In the process that runs the handler they wait until its header is written. In other processes
// they wait until the response is whole. So a variant that nobody requests in the first process can
// be delayed by the time from header to end. Telling other processes about each header would cost
// one command for every response with Vary. So if a page varies, it is best to send it with an
// ETag.
//
// If different requests mean the same to you, use [Options.Hosts], IgnoreQuery, KeepQuery,
// Normalize and Shape to let them share responses. These options change the GET or HEAD request
// that the handler gets, so a client can't put anything into a response that isn't in its key. With
// Shape
// the key also has the values that http.ServeMux or chi in front of the cache has taken from the
// path (Request.PathValue, chi.URLParam), because Shape can't change them. Put the cache in front
// of the router if requests should share by the changed path. If another layer in front of the
// cache has derived something else from the original request, VaryBy must return it. [Cache.Purge]
// finds all spellings of a URL.
//
// # Changes
//
// A successful request with POST, PUT, PATCH, DELETE or an unknown method removes the stored
// responses of its own URL if [Cache.Handler] or [Cache.Invalidates] is in front of its handler:
//
//	r.With(pages.Handler).Get("/products/{id}", show)
//	r.With(pages.Invalidates).Post("/products/{id}", save)
//
// Anybody can send a request with these methods, so each process limits the invalidations: to 1,000
// different URLs in a burst, and one more URL each second. Above the limit the cache removes only
// the responses that a GET with the same fields would get. Other spellings of the URL and other
// variants stay until they are stale. The limit doesn't apply to [Cache.Purge] and the other purge
// methods. If a handler answers POST in the same way as GET, anybody can remove its pages. So
// register this handler for GET only.
//
// [Options.StorePosts] stores the response to a POST for GET requests if the response says so (RFC
// 9110, section 9.3.3).
//
// # Where it stands among other middlewares
//
//	r.Use(middleware.RequestID, middleware.Recoverer, cors.Handler) // layers that add something of their own for each client
//	r.Use(sessions)                                               // layers that find out who asks: Options.VaryBy can tell the cache
//	r.With(pages.Handler, compress).Get("/products", list)        // the cache stores the output of the layers behind it: here, compressed pages
//	r.With(pages.Invalidates).Post("/products", add)              // a route that only changes something
//
// Header fields that are set before the cache is called are not stored. If the handler's response
// has a field of the same name, it replaces the earlier one. Vary is an exception, because a layer
// in front of the cache may choose between pages. If CORS adds Origin to Vary, each Origin gets a
// copy of its own unless [Options.IgnoreVary] names it.
//
// A layer that chooses a response by a request field must name the field in Vary every time. chi's
// Compress doesn't do this when it doesn't compress. So if Compress is behind the cache, a client
// without Accept-Encoding causes the uncompressed page to be stored for everybody. Put Compress in
// front of the cache, or add Vary: Accept-Encoding in a middleware between the cache and Compress.
//
// # Why a response is not stored
//
// Cache-Status has "stored" if the response is stored, and if this is known when the header is
// sent. It is known if the response has a Content-Length or is complete by then. If it is known
// that the response isn't stored, the parameter "detail" says why. At the end, observers get and
// count the reason, as Event.Reason of EventUnstored. These are the reasons, and a remedy for each:
//
//	no freshness       set Cache-Control: max-age=60 in the handler, or Options.DefaultTTL for all of them
//	stale              max-age=0, or an Age or Date that is too old: give it a lifetime, or an ETag to be asked about
//	no-store, private  that is what the handler says; private means: for this client only
//	no-cache           add an ETag: then it is stored and asked about each time
//	Set-Cookie         set cookies on other routes, or let a middleware in front add them when the header is written
//	Authorization      (or Proxy-Authorization, or a certificate) if the page is the same for everybody, say public or s-maxage
//	Cookie             if the page is the same for everybody, say public, s-maxage or max-age, or Vary: Cookie
//	Vary: *            name the fields on which the page depends
//	status             it is never stored (304, 428, 429, 431, 511; a 206 that nobody asked for)
//	must-understand    the status isn't known here: leave the directive out
//	too large          raise Options.MaxBody
//	flushed            it is fresh only by the options: give it a lifetime, don't flush, or set Options.RecordFlushed
//	event stream       it is never stored
//	taken over         it is never stored: the handler has called Hijack
//	incomplete         the handler panicked, wrote less than its Content-Length, returned without one after its context had ended, or
//	                   called http.Error or WriteHeader with an error when it had begun to write: find errors before the first write
//	too many tags      at most 51 in Cache-Tag and Surrogate-Key
//	too many variants  see Options.Normalize, IgnoreVary and MaxVariants
//	store              Redis can't be used: the Logger says why
//	switch             Options.Switch is off, or in shadow
//	purged             this process has purged it while the handler ran; what other processes purge meanwhile is not known here
//	method             the answer to a HEAD
//	range              the answer to a Range isn't a part that can be stored (see above), or another part is being stored
//	bypass             a request with a body, with If-Match or If-Unmodified-Since, whose Connection names fields, with two hosts, or
//	                   with an invalid Host; or the cache is closed
//	request: no-store  the client says so
//	alone              the request waited for WaitTimeout, or for a response that was for others
//
// # Where the files are
//
// directives.go, request.go, freshness.go, cacheable.go, conditional.go, vary.go, key.go, shape.go,
// cookies.go, variants.go, tags.go, budget.go and update.go make decisions and do nothing else.
// cache.go and exchange.go lead a request through the cache. run.go, recorder.go and revalidate.go
// run the handler, and writer.go and outflow.go send its response to its own client. backlog.go
// limits the memory for slow clients, and turns.go the number of handlers that run for one client
// only. serve.go answers with a stored response, and codec.go defines its form in the store.
// partial.go and partrecorder.go store parts. change.go handles unsafe methods, and post.go stores
// the response to a POST for GET. purge.go has the purge methods, and purged.go remembers the
// purges of this process. Package cacheguard provides leases, waiting, stale windows and tiers.
package middleware
