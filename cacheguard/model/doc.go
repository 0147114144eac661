// Package model holds formal models of parts of the protocol, and the test that checks the models.
// It has no other code. The explorer in the tests of package internal/protocol checks the code
// itself: what one process does for one key, and what the store does. The models in this package
// check the rest: several writers of one key, the tier in each process, stale values and what a
// process remembers of them, tags, and StrongReads across processes.
//
// A model is a Promela file: the scripts that run inside Redis as atomic steps, the replicas around
// them, and a world that expires leases, loses messages and kills processes at the worst moment.
// The model checker spin visits every interleaving. Each model states a rule and must hold. Each
// model also has mutants. A mutant is switched on by a macro and breaks the rule in one place. The
// check that is named for the mutant must then fail. A model that no mutant can break would prove
// nothing.
//
//   - update.pml: Set is safe with one writer per key. Update (claim, write, fill, or invalidate if
//     the fill is refused) is safe with any number of writers, and also if one writer dies half-way
//     while it has its claim.
//   - localtier.pml: a tier of values in each process. A value from the store is inserted only if
//     the key's epoch has not changed since before the store was asked. A leader's own result is
//     inserted only if its fill was stored. Messages come late. A subscription breaks and comes
//     back: it is confirmed, then the tier is cleared, then the tier is trusted. No call gets a
//     value that is older than the changes of which its process has been told. When every message
//     has arrived and nothing is under way, every value in the tier is the origin's value.
//   - stale.pml: stale values are served while one process refreshes them and when loads fail. A
//     request for the lease names the stale value that the process has seen, so that no process
//     refreshes a value that has already been refreshed. A refresh is fenced like any load. A
//     failed refresh leaves a record and never writes the value. Invalidate deletes value, lease
//     and record in one step. MarkStale leaves the value as a stale value. A process remembers a
//     record together with a stamp, like an entry of the local tier.
//   - tags.pml: values are invalidated by tag without being found. A grant has the time before the
//     load, and an invalidation sets a generation to the present time. A value is valid if the time
//     of its grant is later than its generations. All generations may be evicted together. If a
//     process was told of every invalidation that could matter, it accepts the value in a message
//     without asking the store. A client of a cluster keeps generations only while messages arrive.
//   - strong.pml: if a change had returned, in any process, before a read began, the read gets no
//     value from before the change. The result of a flight has the age of its last request to the
//     store. A caller that came after this request goes on with another flight.
//
// # Running
//
// The test needs spin and gcc. Without them the test is skipped. If CACHEGUARD_TEST is full or
// soak, it fails instead:
//
//	go test ./cacheguard/model
//	CACHEGUARD_TEST=full go test -v ./cacheguard/model
//
// The first command takes only the quick runs. The second takes all runs: about one minute, and
// at most 2.2 GB of memory for each of the two checkers that run at the same time.
//
// The header of each model lists its runs, and the test reads them from there:
//
//	run: [MACROS] holds, over N states [(full)]
//	run: [MACROS] fails "check" [(full)]
//
// A run that holds must visit the whole state space without an error, reach every statement of the
// model and find more than N states, so that a model that stops early by accident is not taken for
// a model that holds. A run that fails must fail by the named check and no other. "invalid end
// state" is spin's name for a process that waits for ever. To run a model by hand, and to print the
// steps that lead to a failure:
//
//	spin -a -DNO_REPAIR update.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -m20000
//	spin -t -p -DNO_REPAIR update.pml
//
// # Not modelled
//
// Durations are not modelled: leases may expire at any moment, and each step may take any time. The
// models have one key, two or three replicas, and one store that applies one script at a time. They
// leave out failover, partitions and slots of a cluster, results that can't be stored, many keys at
// once, and the order of budgets. No model covers all parts: for instance, the model of stale
// values has no local tier. The model of the local tier includes values that reach a waiting
// process inside a message. The models assume that the server's clock makes the number of each
// grant unique. The models check the protocol, and not the Go code or the Lua scripts, which have
// their own tests.
package model
