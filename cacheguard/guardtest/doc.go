// Package guardtest helps to test programs that use cacheguard. It has an origin that counts its
// loads and fails on demand, the replicas of a fleet in one process, a proxy to Redis that breaks
// connections, and an observer that records events.
//
// This test checks that a handler makes only one query, for any number of simultaneous requests and
// of replicas:
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
// You don't need this package to test behaviour that takes time, such as TTLs, stale windows and
// back-offs. Package testing/synctest gives a test a fake clock that advances only when all
// goroutines wait, and caches on a memstore use it. Then time.Sleep takes no real time, an hour of
// traffic takes milliseconds, and measured times are exact. Set Jitter to -1 in the options, so
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
// To make an origin fail, inject a [Fault]. [Origin.Loads] then returns how many loads the back-off
// let through.
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
// Make origins and fleets inside the synctest bubble. A [Proxy] uses real TCP and stays outside.
//
// # Waiting
//
// Calls of this package wait at most about a minute for an event, unless their context has another
// deadline. In a synctest bubble the minute is on the fake clock. After the minute the call fails
// the test with a message that names what was awaited and what was seen. Misuse fails the test at
// once, with tb.Fatalf. Unless [Fault.IgnoreContext] is set, a load that waits at a gate ends when
// its own context ends, which is at LoadTimeout at the latest. If a load still waits at a gate when
// the test ends, the test fails.
//
// # What is not promised
//
// A fleet on a memstore is one process. It uses the store's real messages, but no message is late
// or lost. You can't kill a replica or stop it in the middle of a step, because closing a replica
// is an orderly shutdown, which releases its leases. You can't cut off a part of the fleet from the
// rest, and there is no network delay. To test these cases, use redisstores on a [RedisServer],
// each behind its own [Proxy].
//
// An [Origin] counts only its own loads. The test has to make sure that the program queries no
// other system, for example the real database.
package guardtest
