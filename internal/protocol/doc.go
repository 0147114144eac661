// Package protocol decides what a process does for a key after a look-up has found nothing fresh,
// until there is a result. It also decides what the store answers. The package only decides: it has
// no clock, no goroutine, no lock, no I/O, no randomness, no user's code and no value. So tests can
// try every order of events. [Miss] is the state machine of one key in one process. [Slot] is the
// state of one key in the store. Both are comparable values, and their steps are defined for every
// state. Package cacheguard drives Misses, package memstore keeps Slots, and package redisstore has
// a Slot's steps in Lua. A test of package redisstore runs random steps on both and compares
// answers and messages.
//
// [Judge] returns which uses a value is good for at its age. [Counts] reports whether a value is
// still valid after an invalidation. Caches and the inspector of package redisstore use both.
//
// # States
//
//	Begun      nothing was done yet
//	Queued     waits for a slot, to ask for the lease
//	Asking     has the slot and waits for the answer
//	Leading    its load runs under the lease, which is renewed
//	Settling   the load has a result, and the store is told
//	Failing    the load has failed, and the store is told
//	Following  another load has the lease: waits for a message or for that lease's end
//	Leaving    a refresh that can't be done now: does anybody want it?
//	Spared     waits for a slot, to load without the lease
//	Alone      its load runs without the lease
//	Landed     all waiting callers have their result
//
// testdata/steps.txt lists what each state does on each event, and TestTable compares the list with
// the code.
//
// # Rules
//
// Each rule names the code that keeps it, and checks of the explorer. If a mutant breaks the rule,
// one of these checks fails. The mutants are in mutants_test.go, with the numbers of the rules.
//
//  1. A copy of a command may arrive long after its sender has stopped waiting for the answer. So
//     each grant has a number, and a fill, a conclusion and a renewal carry token and number
//     (Slot.holding). A request whose token already has the lease is granted again, with the same
//     number (Slot.Ask). A fill that finds its own value counts as stored (Slot.Fill). Only the
//     result of a load that began with a grant is stored (Miss.alone). Checks: lateFill,
//     believesTooLong, waitsForItself, storedButRefused, refusedButStored, refusedUndisturbed,
//     fillsWithoutLease.
//  2. Each record or message about the end of a load names this load. A process that is told to
//     wait remembers for which load it waits (Miss.asking), and names that load when it asks again.
//     A record answers requests that name its load. During the back-off it answers all requests
//     (Slot.Ask). A process uses the end of a load in a message only if it waits for this load. Any
//     other message makes it look again. Checks: secondLoadForWaiter, errorFromBefore,
//     anothersOutcome.
//  3. A load that leaves no value leaves a record in place of its lease, if it still has the lease
//     (Slot.Conclude), so that a lost message doesn't cost a second load. A change removes the
//     record, and so does a new lease. If the result is for one caller only, each other caller
//     loads for itself, and waits for no other load (Miss.noValue, Miss.asking, Miss.begun).
//     Checks: secondLoadForWaiter, errorAfterRepair, leaseAndRecord, waitsForOthers, asksApart.
//  4. If a lease is gone, the flight is sealed: the load goes on for callers that have joined, and
//     its result is not stored. If another load has the lease, the load is cancelled and its
//     callers follow the other load, unless the load is a write (Miss.leading). After MaxRestarts
//     a process loads without the lease (Miss.again). No caller gets an error because a lease was
//     lost. Checks: joinsOld, loadsBesideHolder, lostToCaller, restartedTooOften, lateFill.
//  5. A load that was given up in this process, because all callers have left, the cache closes, or
//     a cache that the load calls has been closed, has not failed: its lease is released, and there
//     is no record (Miss.end). A grant for which no caller waits any more is given back
//     (Miss.granted). A release ends only its own lease (Slot.Release). The last caller to leave
//     seals the flight. Checks: errorWithoutFailure, leaseLeftBehind, loadsForNobody,
//     loadLeftBehind, releasesAnothers, abandonedToCaller, cancelsNothing.
//  6. An invalidation removes value, lease and record in one step (Slot.Invalidate). The process
//     that invalidates seals its flights before the step, and again after it, even if the store has
//     failed. Every other process seals its flights of the key when the message arrives, and all
//     flights when messages arrive again after a break. Checks: joinsOld, olderThanTold,
//     olderThanChange.
//  7. A stale mark leaves the value, which may be served as stale, and ends the lease in the same
//     step (Slot.MarkStale). A refresh for which no caller waits doesn't wait for other loads
//     (Miss.asking). Checks: olderThanChange, waitsForNobody.
//  8. A claim removes the value and takes the lease over from any other load in one step
//     (Slot.Claim), so the fills of earlier loads are refused. A write that has lost its lease goes
//     on, because it may be half done. If its result isn't stored, or if it has failed, its caller
//     invalidates the key, and there is no record of it (Miss.leading). When the write returns, its
//     process seals its flights. Checks: olderThanTold, olderThanChange, cancelsWrite,
//     tellsOfWrite.
//  11. Only durations are sent over the wire. A process counts the time of a lease from before it
//     sent the request or the renewal (Miss.granted, Miss.leading). If the lease has ended when the
//     process looks at the grant, it gives the lease back. If no renewal has succeeded by the end
//     of the lease, the lease counts as gone. Checks: believesTooLong, loadWithoutLease, joinsOld.
//  12. While a lease is alive, there is one load among the processes that get answers from the
//     store. No lease is granted if there is another lease, or a value that the asker hasn't seen
//     (Slot.Ask). Waiting processes get a message, and begin to listen before they ask. Checks:
//     secondLoad, twoLoadsOfOne, notPushed.
//  13. A miss that waits for another load has no slot (Miss.endTurn). No lease is granted to a miss
//     without a slot. A miss that asks for the lease in place of a look-up already has its slot
//     (Miss.begun). A caller that gets no slot gets an error or a stale value. Checks: turnKept,
//     turnLost, waitsForEver.
//  16. A lost message costs at most the remaining time of the lease: a miss that follows has a
//     timer, and a limit for the whole wait. Checks: waitsForEver, waitsTooLong.
//  17. While a cache is in shadow, its callers only get results of loads of their own process. A
//     load has the lease if no other load has it; with any other answer of the store it runs
//     without the lease (Miss.asking). Checks: answeredByCache.
//
// # Rules of the driver and the stores
//
// These rules are not decided in this package. Each names the code that keeps it, and a test that
// fails if the rule is broken. Paths are relative to package cacheguard.
//
//  5. A load that ignores its context keeps its slot until it returns (load.go):
//     TestAbandonedLoadKeepsItsSlot.
//  6. An invalidation goes on when its caller's context ends, and is sent even if a breaker is
//     open. Its error names the keys whose change could not reach the store. While the store is
//     being told, no call joins a load from before the change (write.go, letters.go):
//     TestChangeOfACallerThatHasLeft, TestWritesGoThrough, TestNobodyJoinsDuringAChange,
//     TestFailedInvalidateSeals, TestRestoredSealsFlights.
//  9. Each grant has a stamp, the clock of the node that keeps the generations from before the
//     load. An invalidation by tag sets the tag's generation to that clock. A value is valid only
//     if its stamp is later than the generations of its cache and of all its tags; equal times are
//     a miss. A missing generation is set to the clock, never counted up (checkAgainst in found.go;
//     lease.lua, later.lua, bump.lua and generations.lua in redisstore): TestTieIsAMiss,
//     TestGenerationsAreLost, and model/tags.pml.
//  10. Before the store is asked, the local tier gives a moment for the key. The answer is put
//     into the tier only if the key has not changed since then. After a break of messages the tier
//     is emptied before it is used again. The process that has loaded keeps the result if the fill
//     was stored (local.go, internal/local): TestLocalTierDoesntKeepWhatChanged,
//     TestLocalTierDuringABreak, and model/localtier.pml.
//  11. A value is not served if, by the store's clock, it was made in the future or its time is
//     over (judge.go, found.go): TestAgeBelowZero.
//  13. A load that asks for its own key, directly or through loads that it has begun, gets
//     ErrRecursion (chain.go): TestRecursion. Loads of different callers that ask for each other's
//     keys wait until LoadTimeout ends them.
//  14. Each key of a batch has a token of its own. A batch loads the keys whose leases it got
//     before it waits for others. A key that is absent from the load's map doesn't exist. Other
//     calls join the keys that a batch loads (many.go): TestGetMany, TestGetManyCoalesces.
//  15. The version of the frame is a part of the value's name, and a change removes the values of
//     both versions (redisstore/names.go): TestTwoVersionsSideBySide.
//  16. Garbage in place of a lease, or a lease without an end, is overwritten
//     (redisstore/lease.lua): TestGarbageLease. If the lease of a stale value is held, a process
//     doesn't ask for it again until that lease ends: TestHeldIsRemembered. The process whose load
//     has failed asks a moment later than the others (backoff.go): TestSickProcessGoesLast. Without
//     messages a waiting process asks from time to time (follow.go): TestPollingWithoutMessages.
//
// # The explorer
//
// TestExplore runs several processes, with real Misses against real Slots, through every order of
// these events: callers come, join and leave; requests, answers, fills, conclusions, releases and
// renewals are sent, carried out and answered, or their answer is lost, or a copy of them arrives
// later; loads read the origin, return, fail, can't be stored or have a result for one caller only;
// slots are refused; messages come late, never or twice; subscriptions break and heal; leases,
// records and values run out while processes stand still; evictions, crashes, Close; a writer
// changes the origin and invalidates, marks or sets; any process makes an Update.
//
// explore_driver_test.go models how the driver performs the machine's actions. The bounds are in
// the scenes of scenes_test.go: one to three processes with at most five calls on one key, or one
// or two processes that ask for two keys together. Each disturbance happens a few times. The big
// scenes are explored only if CACHEGUARD_TEST is full or soak. Under the race detector, another
// test process explores them without it. If a path fails, the explorer prints it as a diagram, with
// a process in each column, and as a list. TestReplay shows how to replay the path.
//
// drivetest/tells.txt lists the events that the explorer's driver passes to misses, by the state of
// the miss and by what it has in hand. The scenes that always run reach every line of the list. Two
// rules are checked for real runs: a run passes only listed events to a miss, and it passes a new
// event only after it has done the earlier actions. TestRuns of drivetest checks both rules for a
// disturbed fleet. With CACHEGUARD_TEST=soak, all tests of package cacheguard, internal/coretest
// and internal/systemtest check them, too. The commands to the store are not compared.
//
// The explorer treats two worlds as the same if they differ only in the order of processes, in the
// names of loads, or in state that is never read again. It drops a command on its way if the
// command's load has no lease and can get none. A message that is not about a change goes only to
// processes in which a miss asks or follows when the message is sent. A process has at most two
// flights at a time. The explorer leaves out tags, the local tier, strong reads, and writes that
// reach the origin after they were given up. The table has the machine's answers for them. Package
// cacheguard/model has models of tags, the local tier, strong reads, values that are served stale,
// and several writers of one key.
package protocol
