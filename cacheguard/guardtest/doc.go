// Package guardtest has what tests of programs that use cacheguard need: an origin that counts its
// loads and fails as it is told to, the replicas of a fleet in one process, a wire to Redis that
// breaks, and an observer that can be asked.
//
// That a handler costs one query, however many requests come at once and however many replicas
// there are:
//
//	func TestOneQueryForAllRequests(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
//			products.Inject(guardtest.Fault{Takes: 50 * time.Millisecond})
//			fleet := guardtest.NewFleet(t, 3, cacheguard.Options[string]{TTL: time.Minute})
//
//			guardtest.Together(t, 100, func(i int) {
//				page := httptest.NewRecorder()
//				handler := productPage(fleet.Replica(i%3), products.Load)
//				handler.ServeHTTP(page, httptest.NewRequest("GET", "/product?id=42", nil))
//				if page.Body.String() != "product 42" {
//					t.Errorf("request %d got %d %q", i, page.Code, page.Body)
//				}
//			})
//			if n := products.Loads(); n != 1 {
//				t.Errorf("%d queries; want 1", n)
//			}
//		})
//	}
//
// # Time
//
// Nothing here is needed to test what takes time, such as TTLs, stale windows and back-offs:
// package testing/synctest gives a test a clock that moves only when everybody waits, and caches on
// a memstore follow it. time.Sleep then takes no time, an hour of traffic takes milliseconds, and
// what is measured is exact. Give the options a Jitter of -1, so that TTLs are exact too.
//
//	func TestNobodyWaitsForTheRefresh(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			price := guardtest.NewOrigin(t, func(string) int { return 100 })
//			price.Inject(guardtest.Fault{Takes: time.Second})
//			prices := guardtest.NewFleet(t, 1, cacheguard.Options[int]{
//				TTL: time.Minute, StaleWhileRevalidate: time.Hour, Jitter: -1,
//			}).Replica(0)
//			get := func() int {
//				v, err := prices.Get(t.Context(), "42", price.Load("42"))
//				if err != nil {
//					t.Fatal(err)
//				}
//				return v
//			}
//
//			get()
//			price.Set("42", 120)
//			time.Sleep(time.Minute) // the TTL is over
//			began := time.Now()
//			if v := get(); v != 100 || time.Since(began) != 0 {
//				t.Errorf("got %d after %v; want the old price at once", v, time.Since(began))
//			}
//			time.Sleep(time.Second) // as long as the refresh takes
//			synctest.Wait()         // and until it is stored
//			if v := get(); v != 120 || price.Loads() != 2 {
//				t.Errorf("got %d after %d loads; want the new price and one refresh", v, price.Loads())
//			}
//		})
//	}
//
// A failing origin is a Fault, and Origin.Loads tells what the back-off let through.
//
//	func TestFailingOriginIsLeftAlone(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			price := guardtest.NewOrigin(t, func(string) int { return 100 })
//			fleet := guardtest.NewFleet(t, 3, cacheguard.Options[int]{
//				TTL: time.Minute, StaleIfError: time.Hour, Backoff: 30 * time.Second, Jitter: -1,
//			})
//			fleet.Stampede(t.Context(), "42", 1, price.Load("42"))
//			time.Sleep(time.Minute)
//			price.Inject(guardtest.Fault{Err: errors.New("no database")})
//			for range 10 {
//				answers := fleet.Stampede(t.Context(), "42", 20, price.Load("42"))
//				if n := answers.Count(cacheguard.StatusStale); n != 60 {
//					t.Errorf("%d of %d callers got the old price; %v", n, len(answers), answers.Err())
//				}
//				time.Sleep(time.Second)
//			}
//			if n := price.Loads(); n != 2 {
//				t.Errorf("%d loads; want the first one, and one that failed within the back-off", n)
//			}
//		})
//	}
//
// Make origins and fleets inside of the bubble. A Proxy is real TCP and stays outside.
//
// # Waiting
//
// What a test waits for with this package it waits for about a minute, in a bubble one of the
// bubble's, unless a context says otherwise. Then it fails, and the message has what was awaited
// and what was seen. Misuse fails the test at once, with tb.Fatalf. A load at a gate waits until
// its own context ends, at LoadTimeout if not before; one that nobody has let go by the end of the
// test fails it.
//
// # What is not promised
//
// A fleet on a memstore is one process. Its messages are the store's real ones, but none is late or
// lost, no replica can be killed or stopped in the middle of a step (closing one is the orderly way
// out, which releases its leases), no part of the fleet can be cut off from the rest, and there is
// no network that takes time. For those use redisstores on a RedisServer, each behind a Proxy of
// its own.
//
// An Origin counts what it is asked for. That a program asks nothing else, the real database above
// all, is for the test to see to.
package guardtest
