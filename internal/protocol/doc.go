// Package protocol decides what a process does about a key after a look-up that found nothing
// fresh, until there is a result, and what the store answers. It does nothing itself: it has no
// clock, no goroutine, no lock, no I/O, no randomness, no user's code and no value. So tests can
// try every order of events. [Miss] is the state machine of one key in one process, [Slot] is what
// the store has of one key. Both are comparable values, and their steps are defined for every
// state. Package cacheguard drives Misses, package memstore keeps Slots, and package redisstore has
// a Slot's steps in Lua. A test there runs random steps on both and compares answers and messages.
//
// [Judge] says what a value may be used for at its age, and [Counts] whether it is still valid
// after an invalidation. Caches use both, and so does the inspector of package redisstore.
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
// testdata/steps.txt lists what each state does on each event, and TestTable compares the list with
// the code.
//
// # Rules
//
// Each rule names the code that keeps it, and the checks of the explorer by which mutants fail that
// break the rule. The mutants are in mutants_test.go, with the numbers of the rules.
//
//  1. A copy of a command may arrive long after its sender has stopped to wait for the answer. So
//     each grant has a number, and a fill, a conclusion and a renewal carry token and number
//     (Slot.holding). A request whose token already has the lease is granted again, with the same
//     number (Slot.Ask). A fill that finds its own value counts as stored (Slot.Fill). Only the
//     result of a load that began with a grant is stored (Miss.alone). Checks: lateFill,
//     believesTooLong, waitsForItself, storedButRefused, refusedButStored, refusedUndisturbed,
//     fillsWithoutLease.
//  2. An ending has the name of its load. A process that is told to wait remembers for which load
//     it waits (Miss.asking), and names that load when it asks again. A record answers requests
//     that name its load, and during the back-off all requests (Slot.Ask). A process takes the
//     ending in a message only if it waits for that load. Any other message means: look again.
//     Checks: secondLoadForWaiter, errorFromBefore, anothersOutcome.
//  3. A load that leaves no value leaves a record in place of its lease, if it still has the lease
//     (Slot.Conclude), so that a lost message doesn't cost a second load. A change removes the
//     record, and so does a new lease. If the result is for one caller only, each other caller
//     loads for itself, and waits for no other load (Miss.noValue, Miss.asking, Miss.begun).
//     Checks: secondLoadForWaiter, errorAfterRepair, leaseAndRecord, waitsForOthers, asksApart.
//  4. If a lease is gone, the flight is sealed: the load goes on for callers that have joined, and
//     its result is not stored. If another load has the lease, the load is cancelled, and its
//     callers follow the other load (Miss.leading). After MaxRestarts a process loads without the
//     lease (Miss.again). No caller gets an error because a lease was lost. Checks: joinsOld,
//     loadsBesideHolder, lostToCaller, restartedTooOften, lateFill.
//  5. A load that was given up in this process, because all callers have left or the cache closes,
//     has not failed: its lease is released, and there is no record (Miss.end). A grant for which
//     no caller waits any more is given back (Miss.granted). A release ends only its own lease
//     (Slot.Release). The last caller to leave seals the flight. Checks: errorWithoutFailure,
//     leaseLeftBehind, loadsForNobody, loadLeftBehind, releasesAnothers, abandonedToCaller,
//     cancelsNothing.
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
