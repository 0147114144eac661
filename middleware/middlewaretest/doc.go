// Package middlewaretest audits handlers behind a shared HTTP cache such as package middleware:
// does what one client sends decide about what another one gets?
//
// The cache compares what it can see: the URL, the host, and the fields that a response names in
// Vary. Only the handler knows what else it reads. If it builds a link from X-Forwarded-Host,
// greets the owner of a cookie or picks a language without saying so, the first client's response
// goes to all (web cache poisoning, or another user's page). Tests that ask once for each page
// don't see this. Audit does, with each page and each thing that a client controls:
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
// For each sample and each variation it takes a handler with an empty cache, sends the variation
// and then the sample, and compares what the sample gets with what it gets from an empty cache when
// it comes first. Then it does the same in the other order. Each difference is a Finding with the
// two requests. What differs between two equal requests (times, counters, random tokens) is not
// compared: then only the variation's own marks in another's response count.
//
// # What it varies
//
// Everything is one change of a sample, beside the duplicates, which are compared with one line
// that has both values:
//
//   - fields: those of Fields, which are what frameworks and handlers read (forwarded hosts,
//     schemes, addresses and paths, rewritten URLs, negotiation, client hints, Origin, Referer,
//     User-Agent, method overrides, Range and conditions), those of the sample, and Config.Fields
//   - users: Authorization (Basic, Bearer), the cookies of Cookies, those of the sample and
//     Config.Cookies; with Config.Users each of your own against nobody and against each other
//   - fields that Connection names, and that a proxy behind the cache removes: each of the fields
//     above, Cookie and Authorization
//   - the host: another one, capitals, a port, the scheme's own port, a dot at the end; and the
//     scheme
//   - the connection: another server's name in the TLS handshake, none, another host on it; a
//     client's certificate; HTTP/1.0 and HTTP/2; the client's address
//   - the method: HEAD, OPTIONS, POST with an override, a GET with a body
//   - duplicates: two lines of a field against one with both values, in both orders
//   - the query: an unknown parameter, a second value for each of the sample's, their order,
//     encoding, case and absence
//   - the path: a slash more or less, doubled, dots, encoding, capitals, a parameter behind ";"
//
// # What it doesn't find
//
// What depends on who waits at the same time, on a session that only your own login makes (give
// Config.Users), on fields that nobody has named, or on several changes at once. A certificate that
// your handler knows is a user's, too: let its function in Config.Users set r.TLS. A finding is a
// fact: the two requests repeat it. No finding is no proof.
package middlewaretest
