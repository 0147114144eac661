// Package middlewaretest audits handlers behind a shared HTTP cache such as package middleware: can
// one client's request change the response that another client gets?
//
// The cache compares the parts of a request that it knows: the URL, the host, and the fields that a
// response names in Vary. Only the handler knows which other parts it reads. If the handler builds
// a link from X-Forwarded-Host, greets the owner of a cookie or picks a language, and doesn't say
// so in its response, all clients get the first client's response (web cache poisoning, or another
// user's page). Tests that request each page once don't find this. [Audit] looks for it: for each
// page it varies the parts of a request that a client controls:
//
//	func TestPages(t *testing.T) {
//		middlewaretest.Audit(t, func() http.Handler {
//			store := memstore.New(memstore.Options{})
//			t.Cleanup(func() { store.Close() })
//			return shop.Routes(store) // as the program makes them, with the middleware
//		}, httptest.NewRequest("GET", "/catalog", nil), httptest.NewRequest("GET", "/products/42?color=red", nil))
//	}
//
// # What it does
//
// For each sample and each variation Audit makes a handler with an empty cache and sends the
// variation first, then the sample. For comparison it sends the sample to other handlers with an
// empty cache, without the variation. If the sample's response after the variation equals none of
// the responses without it, there is a difference. If there is none, Audit does the same in the
// other order, except for requests that a cache may answer by itself (Range, conditions,
// Cache-Control, Pragma, HEAD), and for requests with fields that Connection names. Each difference
// is a [Finding] with the two requests. Parts of a response that differ between two equal requests
// (times, counters, random tokens) are not compared. In these parts only one thing counts as a
// difference: a mark that a variation has put into one request appears in the response to the other
// request. The order of the members of Allow, Vary and the lists of CORS means nothing and is not
// compared.
//
// # What it varies
//
// Most variations are one change of a sample. Four kinds of requests are not compared with the
// sample itself:
//
//   - A request that has a field twice is compared with one that has both values in one line, and
//     with one that has the two lines in the other order.
//   - A request with fields that Connection names is compared with one with the same fields and
//     without Connection.
//   - A request with another TLS handshake or another host by TLS is compared with a usual request
//     by TLS.
//   - The requests of Config.Users are compared with each other, and with a request of no user.
//
// The variations are:
//
//   - fields: the fields in [Fields], which frameworks and handlers read (forwarded hosts, schemes,
//     addresses and paths, rewritten URLs, negotiation, client hints, Origin, Referer, User-Agent,
//     method overrides, Range and conditions), the sample's own fields, and Config.Fields
//   - users: Authorization (Basic, Bearer), and the cookies of Cookies, of the sample and of
//     Config.Cookies. With Config.Users each of your own users is compared with no user and with
//     each other user
//   - fields that Connection names, and that a proxy behind the cache removes: Cookie,
//     Authorization, and each of the fields above except Range, conditions, Cache-Control and
//     Pragma
//   - the host and the scheme: another host; the host in capitals, with a port, with the scheme's
//     own port, and with a dot at its end; the other scheme
//   - the connection: another server's name or no name in the TLS handshake; another host by TLS
//     for the same server; a client's certificate; HTTP/1.0 and HTTP/2; the client's address
//   - the method: HEAD, OPTIONS, POST with an override, a GET with a body
//   - duplicates: two lines of a field against one with both values, and against the same lines in
//     the other order
//   - the query: an unknown parameter and common ones (q, id, utm_source and others); for each
//     parameter of the sample another value, a second value, and ";" in place of "&"; and the
//     order, encoding, case and absence of these parameters
//   - the path: another path, a slash more or less, doubled, dots, encoding, capitals, a parameter
//     behind ";", a suffix such as that of a style sheet
//
// # What it doesn't find
//
// It doesn't find responses that depend on which requests wait at the same time, on a session that
// only your own login makes (set Config.Users), on fields that nobody has named, or on several
// changes at once. A certificate that your handler knows also identifies a user: let that user's
// function in Config.Users set r.TLS. A finding is a fact: sending its two requests repeats it.
// Without findings there may still be errors.
package middlewaretest
