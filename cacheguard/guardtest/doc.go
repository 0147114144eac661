// Package guardtest has what tests of programs that use cacheguard need: an origin that counts its loads and fails as
// it is told to, the replicas of a fleet in one process, a wire to Redis that breaks, and an observer that can be
// asked.
//
// That a handler costs one query, however many requests come at once and however many replicas there are:
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
// Nothing here is needed to test what takes time, such as TTLs, stale windows and back-offs: package testing/synctest
// gives a test a clock that moves only when everybody waits, and caches on a memstore follow it. time.Sleep then takes
// no time, an hour of traffic takes milliseconds, and what is measured is exact. Give the options a Jitter of -1, so
// that TTLs are exact too.
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
// A failing origin is a Fault: with Fault{Times: 3, Err: err} three loads fail, and Origin.Loads tells how many the
// back-off let through in the time that was slept. Make origins and fleets inside of the bubble. A Proxy is real TCP
// and stays outside.
//
// # Waiting
//
// Whatever waits here, waits for a minute at most (in a bubble for one of its minutes, which is no time), and then
// fails the test and says what it awaited and what it saw. What is misused fails the test as well, with tb.Fatalf.
//
// # What is not promised
//
// A fleet on a memstore is one process. Its messages are the store's real ones, but none is late or lost, no replica
// can be killed or stopped in the middle of a step (closing one is the orderly way out, which releases its leases), no
// part of the fleet can be cut off from the rest, and there is no network that takes time. For those use redisstores
// on a RedisServer, each behind a Proxy of its own.
//
// An Origin counts what it is asked for. That a program asks nothing else, the real database above all, is for the test
// to see to.
package guardtest
