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
// variation first, then the sample. It compares the response to the sample with the responses that
// the sample gets alone. If they don't differ, it does the same in the other order, except for
// requests that a cache may answer by itself (Range, conditions, Cache-Control, Pragma, HEAD). Each
// difference is a [Finding] with the two requests. Parts of a response that differ between two
// equal requests (times, counters, random tokens) are not compared. In these parts only one thing
// counts as a difference: a mark that a variation has put into one request appears in the response
// to the other request. The order of the members of Allow, Vary and the lists of CORS means nothing
// and is not compared.
//
// # What it varies
//
// Most variations are one change of a sample. Four kinds are compared with another request than the
// sample: duplicates with both values in one line, fields that Connection names with the same
// fields without Connection, a connection by TLS with another one by TLS, and Config.Users with
// each other.
//
//   - fields: the fields in [Fields], which frameworks and handlers read (forwarded hosts, schemes,
//     addresses and paths, rewritten URLs, negotiation, client hints, Origin, Referer, User-Agent,
//     method overrides, Range and conditions), the sample's own fields, and Config.Fields
//   - users: Authorization (Basic, Bearer), and the cookies of Cookies, of the sample and of
//     Config.Cookies. With Config.Users each of your own users is compared with no user and with
//     each other user
//   - fields that Connection names, and that a proxy behind the cache removes: each of the fields
//     above, Cookie and Authorization
//   - the host and the scheme: another host; the host in capitals, with a port, with the scheme's
//     own port, and with a dot at its end; the other scheme
//   - the connection: another server's name or no name in the TLS handshake; another host by TLS
//     for the same server; a client's certificate; HTTP/1.0 and HTTP/2; the client's address
//   - the method: HEAD, OPTIONS, POST with an override, a GET with a body
//   - duplicates: two lines of a field against one with both values, in both orders
//   - the query: an unknown parameter, a second value for each parameter of the sample, and the
//     order, encoding, case and absence of these parameters
//   - the path: a slash more or less, doubled, dots, encoding, capitals, a parameter behind ";"
//
// # What it doesn't find
//
// It doesn't find responses that depend on which requests wait at the same time, on a session that
// only your own login makes (set Config.Users), on fields that nobody has named, or on several
// changes at once. A certificate that your handler knows also identifies a user: let that user's
// function in Config.Users set r.TLS. A finding is a fact: sending its two requests repeats it.
// Without findings there may still be errors.
package middlewaretest
