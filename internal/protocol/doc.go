// Package protocol decides what a process does about a key between a look-up that found nothing
// fresh and a result, and what the store does when it is asked. It does nothing itself: no clock,
// no goroutine, no lock, no I/O, no randomness, no user's code and no value. Miss is the state
// machine of one key in one process, Slot what the store has of one key. Both are comparable values
// with total step functions. Package cacheguard drives Misses, package memstore keeps Slots, and
// package redisstore does a Slot's steps in Lua; a test there has random steps answer and tell the
// same on both.
//
// Judge says what a value is good for by its age, and Counts whether it outlives an invalidation:
// to caches, and to those who inspect what stands in a store.
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
//	Landed     all who wait have what they get
//
// testdata/steps.txt has what each state answers to each event, and TestTable compares.
//
// # Rules
//
// With each rule stands where it is kept and by which checks of the explorer a mutant fails that
// breaks it. The mutants are in mutants_test.go, by the numbers of the rules.
//
//  1. A copy of a command may arrive long after its answer was given up. So each grant has a
//     number; a fill, a conclusion and a renewal carry token and number (Slot.holding); a question
//     whose token has the lease is granted again, with the number in place (Slot.Ask); a fill that
//     finds its own value is stored (Slot.Fill). Only a load that began with a grant in hand is
//     stored (Miss.alone). Checks: lateFill, believesTooLong, waitsForItself, storedButRefused,
//     refusedButStored, refusedUndisturbed, fillsWithoutLease.
//  2. An ending has the name of its load. Who is told to wait remembers whose load it waits for
//     (Miss.asking), and asks again with that name; a record answers those who name its load, and
//     everybody during the back-off (Slot.Ask); from a message only the ending of that load is
//     taken, anything else means: look again. Checks: secondLoadForWaiter, errorFromBefore,
//     anothersOutcome.
//  3. A load that leaves no value leaves a record in the lease's place, if the lease is still its
//     own (Slot.Conclude), so that a lost message costs no second load. A change removes it, and so
//     does a lease. If the result is for one caller, each of the others loads for itself, waits for
//     nobody and takes no turns (Miss.noValue, Miss.asking, Miss.begun). Checks:
//     secondLoadForWaiter, errorAfterRepair, leaseAndRecord, waitsForOthers, asksApart.
//  4. A lease that is gone seals the flight: the load goes on for those who have joined, and is not
//     stored. If another load has it, the load is cancelled and its callers follow the other
//     (Miss.leading). After MaxRestarts a process loads without the lease (Miss.again). No caller
//     sees that a lease was lost. Checks: joinsOld, loadsBesideHolder, lostToCaller,
//     restartedTooOften, lateFill.
//  5. A load that was given up here, because everybody left or the cache closes, has not failed:
//     its lease is released and leaves no record (Miss.end). A grant that nobody waits for any more
//     is given back (Miss.granted). A release ends its own lease only (Slot.Release). The last one
//     to leave seals the flight. Checks: errorWithoutFailure, leaseLeftBehind, loadsForNobody,
//     loadLeftBehind, releasesAnothers, abandonedToCaller, cancelsNothing.
//  6. An invalidation removes value, lease and record in one step (Slot.Invalidate). Its process
//     seals its flights before it, and again after it, also if the store has failed; another
//     process seals when the message arrives, and seals every flight when messages arrive again
//     after a break. Checks: joinsOld, olderThanTold, olderThanChange.
//  7. A mark leaves the value, which may be served as stale, and ends the lease in the same step
//     (Slot.MarkStale). A refresh that nobody waits for does not wait for others (Miss.asking).
//     Checks: olderThanChange, waitsForNobody.
//  8. A claim removes the value and takes the lease over in one step, whoever holds it
//     (Slot.Claim): what was loaded before is refused. A write that has lost its lease goes on, for
//     it may be half done; if its result isn't stored, or it has failed, its caller invalidates,
//     and no record tells of it (Miss.leading). When it returns, its process seals its flights.
//     Checks: olderThanTold, olderThanChange, cancelsWrite, tellsOfWrite.
//  11. Only durations cross the wire. A lease counts from before the question or the renewal was
//     sent (Miss.granted,
//     Miss.leading); one that has ended when its grant is looked at is given back; one that could not be renewed until
//     its end counts as gone. Checks: believesTooLong, loadWithoutLease, joinsOld.
//  12. While a lease is alive there is one load among the processes that get answers: no lease
//     beside a lease or beside
//     a value that the asker hasn't seen (Slot.Ask). Those who wait are told, and listen before they ask. Checks:
//     secondLoad, twoLoadsOfOne, notPushed.
//  13. Nobody waits for another load with a slot in hand (Miss.endTurn), and nobody is granted a
//     lease without one: a question in
//     the place of a look-up has it beforehand (Miss.begun). Who is refused one is told so, or gets what is stale. Checks: turnKept, turnLost, waitsForEver.
//  16. A lost message costs no more than what is left of the lease: who follows has a timer, and
//     an end. Checks: waitsForEver, waitsTooLong.
//  17. While a cache is in shadow its callers get results of their own process' loads and nothing
//     else: with the lease if nobody else
//     has it, and without it whatever the store says instead (Miss.asking). Checks: answeredByCache.
//
// # Rules of the driver and the stores
//
// These are not decided here. With each stands where it is kept and a test that fails without it;
// paths are from package cacheguard.
//
//  5. A load that ignores its context keeps its slot until it returns (load.go):
//     TestAbandonedLoadKeepsItsSlot.
//  6. An invalidation goes on when its caller's context ends, is sent although a breaker is open,
//     and names the keys of which the store could not be told (write.go, deliver.go):
//     TestWritesGoThrough, TestFailedInvalidateSeals, TestRestoredSealsFlights.
//  9. Each grant has a stamp, the clock of the node that keeps the generations from before the
//     load. An invalidation by tag sets the tag's generation to that clock, and a value counts if
//     its stamp is later than the generations of its cache and of all its tags: a tie is a miss.
//     What is missing of the generations is set to the clock, never counted up (look.go,
//     redisstore/clock.lua): TestTieIsAMiss, TestGenerationsAreLost, and model/tags.pml.
//  10. Before the store is asked, the moment of the local tier is taken; what is found is kept if
//     nothing has changed since. After a
//     break the tier is emptied before it is trusted again. Who has loaded keeps the result if the fill was stored (local.go,
//     internal/local): TestLocalTierDoesntKeepWhatChanged, TestLocalTierDuringABreak, and model/localtier.pml.
//  11. A value from the future, by the store's clock, or beyond its end is good for nothing
//     (freshness.go): TestAgeBelowZero.
//  13. A load that asks for its own key is told so, also through other loads (chain.go):
//     TestRecursion.
//  14. Each key of a batch has a token of its own. What was granted is loaded before anything is
//     waited for, a key that is absent from the
//     load's map doesn't exist, and keys that are loaded here are joined by others (many.go): TestGetMany, TestGetManyCoalesces.
//  15. The version of the frame is part of a value's name, and a change removes the values of both
//     versions (redisstore/names.go):
//     TestTwoVersionsSideBySide.
//  16. Something else in a lease's place, or a lease without an end, is overwritten
//     (redisstore/lease.lua): TestGarbageLease.
//     A stale value whose lease is held is not asked for again until that ends: TestHeldIsRemembered. The process whose load has
//     failed asks a moment later than the others (backoff.go): TestSickProcessGoesLast. Without messages a waiter asks from time to
//     time (follow.go): TestPollingWithoutMessages.
//
// # The explorer
//
// TestExplore runs several processes of real Misses against real Slots through every order of:
// callers that come, join and leave; questions, answers, fills, conclusions, releases and renewals
// that are sent, done and answered, or whose answer is lost, and of which a copy arrives later;
// loads that read the origin, return, fail, can't be stored or have a result for one caller only;
// slots that are refused; messages that come late, never or twice; subscriptions that break and
// heal; leases, records and values that run out while processes stand still; evictions, crashes,
// Close; a writer that changes the origin and invalidates, marks or sets; and Updates in any
// process. What the driver does about the machine's actions is modelled in explore_driver_test.go.
// The bounds are those of the scenes in scenes_test.go: two or three processes with one to five
// calls on one key, or two processes that ask for two keys together; each disturbance a few times.
// What comes in more than fifty thousand worlds is left out with -short and with the race detector.
// A path that fails is printed as a diagram, with a process in each column, and as a list that
// TestReplay shows how to replay.
//
// What its driver tells misses, by their state and by what they have in hand then, is
// drivetest/tells.txt. Under CACHEGUARD_TEST=soak the tests of package cacheguard and those in
// internal/systemtest fail if a run tells a miss anything else, or something new before what was to
// be done is being done. What is done to the store is not compared.
//
// Worlds are taken for the same that differ in the order of processes, in the names of loads, or in
// what nobody looks at any more. A command on its way is dropped when its load has no lease and can
// get none, and a message that tells of no change goes to those processes only where somebody asks
// or follows when it is sent. A process has two flights at a time at most. Not in there: tags, the
// local tier, strong reads, and writes that reach the origin after they were given up; the table
// has the machine's answers.
package protocol
