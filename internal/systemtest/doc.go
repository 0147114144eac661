// Package systemtest has nothing but tests: of package cacheguard with redisstore on a real Redis,
// as a fleet sees it.
//
//   - process_*_test.go: replicas are processes of their own, which are killed and stopped by
//     signals (TestProcesses...).
//   - linear*_test.go: what members of a fleet in one process have read and changed, while replies
//     get lost and values disappear, is checked for linearizability.
//   - local_tier_test.go, tags_test.go, many_test.go: promises that members keep between them, and
//     how long messages take.
//   - soak_test.go: reads and changes of all kinds, under faults of all kinds (TestSoak).
//
// Without a redis-server the tests are skipped; CACHEGUARD_TEST=full fails instead, and runs more
// cases for longer. The soak takes 3 seconds, 30 with full, and 10 minutes with soak. It prints the
// seed of its faults, which gives the same plan again:
//
//	CACHEGUARD_TEST=soak go test -v -run TestSoak -timeout 30m ./internal/systemtest
//	CACHEGUARD_SEED=<seed> CACHEGUARD_TEST=soak go test -v -run TestSoak ./internal/systemtest
//
// With soak all that runs do is compared with the protocol's explorer besides
// (internal/protocol/drivetest).
package systemtest
