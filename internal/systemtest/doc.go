// Package systemtest has only tests. They test package cacheguard with redisstore on a real Redis,
// as a fleet uses it.
//
//   - process_*_test.go: replicas are separate processes, which are killed and stopped by signals
//     (TestProcesses...).
//   - linear*_test.go: members of a fleet in one process read and change values while replies get
//     lost and values disappear. Their histories are checked for linearizability.
//   - local_tier_test.go, tags_test.go, many_test.go: guarantees between members, and how long
//     messages take.
//   - soak_test.go: reads and changes of all kinds, under faults of all kinds (TestSoak).
//
// Without a redis-server the tests are skipped. With CACHEGUARD_TEST=full they fail instead, and
// run more cases for longer. The soak takes 3 seconds, 30 seconds with full, and 10 minutes with
// soak. It prints the seed of its faults. The same seed gives the same plan again:
//
//	CACHEGUARD_TEST=soak go test -v -run TestSoak -timeout 30m ./internal/systemtest
//	CACHEGUARD_SEED=<seed> CACHEGUARD_TEST=soak go test -v -run TestSoak -timeout 30m ./internal/systemtest
//
// With soak, all steps of runs are also compared with the protocol's explorer
// (internal/protocol/drivetest).
package systemtest
