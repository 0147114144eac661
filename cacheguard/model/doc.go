// Package model holds formal models of the parts of the protocol that its own
// explorer does not visit, and the test that checks them. It has no code of its
// own. What one process does about one key, and what the store does, is checked
// in package internal/protocol, on the code itself. Here is what that leaves
// out: several writers of one key, the tier in each process, what is remembered
// of stale values, tags, and reads that are strong across processes.
//
// A model is a Promela file: the scripts that run inside Redis as atomic
// steps, the replicas around them, and a world that expires leases, loses
// messages and kills processes at the worst moment. The model checker spin
// visits every interleaving. Each model states a rule and must hold; and it
// comes with mutants, switched on by a macro, that break the rule in one place
// and must then fail by the very check that they are named for. A model that
// no mutant can break would prove nothing.
//
//   - update.pml: Set is safe with one writer per key. Update (claim, write,
//     fill, or invalidate where the fill is refused) is safe with any number,
//     and with one that dies half-way while its claim stands.
//   - localtier.pml: a tier of values in each process. What the store gives is
//     inserted only if nothing bumped the key's epoch since before it was
//     asked, and a leader's own result only if its fill was stored. Messages
//     come late, a subscription breaks and comes back: confirmed, cleared,
//     trusted, in this order. No call gets what is older than what its process
//     has been told, and at rest the tier has what the origin has.
//   - stale.pml: stale values are served while one process refreshes them and
//     when loads fail. The lease is asked for in spite of the value seen, by
//     its name, so that nobody refreshes what has been refreshed. A refresh is
//     fenced like any load, a failed one leaves a record and never writes the
//     value. Invalidate deletes value, lease and record in one step, MarkStale
//     leaves the value, stale. What a process remembers of a record it
//     remembers by a stamp, like an entry of the local tier.
//   - tags.pml: values are invalidated by tag without being found. A grant says
//     what the clock was before the load, a bump what it is, and a value counts
//     if it is from after its generations, which may be evicted as a whole. A
//     message's value counts without asking if every bump was told that could
//     matter. What a client of a cluster keeps of generations it keeps while
//     messages arrive.
//   - strong.pml: reads that get nothing from before a change that had returned
//     in any process. What a flight brings is as of the moment before its last
//     question was sent, and who came later goes on with another flight.
//
// # Running
//
// The test needs spin and gcc. Without them it skips, and fails instead of
// skipping when CACHEGUARD_TEST is full or soak:
//
//	go test ./cacheguard/model
//	CACHEGUARD_TEST=full go test -v ./cacheguard/model
//
// The first takes the quick runs, the second all of them: one or two minutes
// and less than 1 GB of memory for each of the two checkers that run side by side.
//
// The header of each model lists its runs, and the test reads them from there:
//
//	run: [MACROS] holds, over N states [(full)]
//	run: [MACROS] fails "check" [(full)]
//
// A run that holds must visit the whole state space without an error, reach
// every statement of the model and find more than N states, so that a model
// that came to a standstill by accident doesn't count as one that holds. A run
// that fails must fail by that check and no other; "invalid end state" is
// spin's name for a process that waits for ever. By hand, with the steps that
// lead to the failure:
//
//	spin -a -DNO_REPAIR update.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m20000
//	spin -t -p -DNO_REPAIR update.pml
//
// # Not modelled
//
// Time passes only as "may be over by now": leases run out at any moment, and
// how long anything takes is not said. One key, two or three replicas, one
// store that applies one script at a time: failover, partitions and slots of a
// cluster are left out, and so are results that can't be stored, many keys at
// once and the order of budgets. The parts are modelled apart: stale values know
// no local tier. A value that reaches a waiter inside a message is in the model
// of the local tier. The number of a grant is unique; that the server's clock
// makes it so is an assumption. The models check the protocol, not the Go code
// or the Lua scripts: those have tests of their own.
package model
