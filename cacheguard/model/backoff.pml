/* backoff: a failed load is an outcome with a name.

   Rule: "held" tells a caller the token of the load to wait for, and every outcome names its load. Fail
   replaces the lease, while it carries the load's token, by an outcome record in the lease's own name, in one
   step, and tells everyone. A waiter takes an outcome from a message only if it names the load that the
   waiter was told to wait for, anything else means: look again. The record answers every caller for the
   back-off; where there is none, it answers those who name its load, and any other caller is granted. The
   record carries the error, so a lost message costs no second load. Invalidate deletes the lease's name, and
   with it the record. A load that was abandoned (its last caller left) is no failure: it releases the lease,
   leaves no record, and its waiters ask again.

   Modelled: two replicas make two calls each (THREE: three make one each); the origin fails until it is
   repaired, then comes an Invalidate; loads return, fail or are abandoned; lease and record run out at any
   moment; a message arrives late or never. NO_BACKOFF: the cache is set to have no back-off.

   Checked
     errorAfterRepair     a call that began after Invalidate returned gets an error from before the repair
     errorFromBefore      without back-off, a call gets the error of a load that had ended before it began (P2)
     errorWithoutFailure  a call gets an error although the load it comes from did not fail (P5)
     secondLoad           a load is granted although the last one failed, its back-off is on and nothing has
                          been invalidated; or although one runs whose lease is alive (P1, P8)
     secondLoadForWaiter  a waiter is granted a load although the one it was told to wait for has failed and
                          its record should still stand (P2)
     invalid end state    a waiter sleeps for ever (P2)

   Runs that hold
     run: holds, over 500000 states
     run: NO_BACKOFF holds, over 700000 states (full)
     run: THREE holds, over 1000000 states (full)
     run: THREE,NO_BACKOFF holds, over 1500000 states (full)

   Mutants
   FAIL_UNFENCED: fail leaves a record also when the lease is gone
     run: FAIL_UNFENCED fails "errorAfterRepair"
   MARK_APART: the record has a name of its own, Invalidate leaves it
     run: MARK_APART fails "errorAfterRepair"
   NO_MARKER: no record, the error travels in the message alone
     run: NO_MARKER fails "secondLoad"
     run: NO_BACKOFF,NO_MARKER fails "secondLoadForWaiter"
   ANY_MESSAGE: a waiter takes any error that arrives
     run: ANY_MESSAGE fails "errorAfterRepair"
     run: NO_BACKOFF,ANY_MESSAGE fails "errorFromBefore"
   ANSWER_ALL: without back-off, the record answers every caller all the same
     run: NO_BACKOFF,ANSWER_ALL fails "errorFromBefore"
   ABANDON_MARKS: an abandoned load leaves a record like a failed one
     run: ABANDON_MARKS fails "errorWithoutFailure"
   NO_TIMER: a waiter relies on the message alone
     run: NO_TIMER fails "invalid end state"
*/

#ifdef THREE
#define REPLICAS 3
#define CALLS 1
#else
#define REPLICAS 2
#define CALLS 2
#endif
#define NONE 0

bool broken = true;           /* the origin fails */
bool value = false;           /* the store holds a value */
byte lease = NONE;            /* the lease's name holds the token of a load that runs, */
byte record = NONE;           /* or an outcome record: the token of a load that failed */
byte tokens = 0;
bool repaired = false;        /* the Invalidate that follows the repair has returned */
byte done = 0;
chan outcome[REPLICAS] = [2] of { byte };     /* messages on their way: the token of a load that failed */

bool mayLoad = true;          /* for the checks: the next grant is justified */
byte lastFailed = NONE;       /* the newest load whose failure the fleet may know of */
bool lastCounts = false;      /* and its record should still stand */
byte abandoned = 0;           /* bit set of loads that were abandoned */
hidden byte errorAfterRepair, errorFromBefore, errorWithoutFailure, secondLoad, secondLoadForWaiter;

inline grant() {
  d_step {
    secondLoad = !mayLoad; assert(!secondLoad);
    secondLoadForWaiter = (named != NONE && named == lastFailed && lastCounts); assert(!secondLoadForWaiter);
    mayLoad = false; lastCounts = false;
    tokens++; token = tokens; lease = token; record = NONE
  }
}

inline takeError(load) {      /* the call ends with the error of that load */
  d_step {
    errorWithoutFailure = (abandoned >> load) & 1; assert(!errorWithoutFailure);
#ifdef NO_BACKOFF
    errorFromBefore = (load <= before); assert(!errorFromBefore);
#endif
    errorAfterRepair = late; assert(!errorAfterRepair)
  }
}

inline publish(load) {        /* each copy of the message may be lost */
  i = 0;
  do
  :: i < REPLICAS -> if :: nfull(outcome[i]) -> outcome[i]!load :: true fi; i++
  :: else -> break
  od;
  i = 0
}

inline failScript() {
  if
  :: lease == token ->
     lease = NONE; lastFailed = token; lastCounts = true;
#ifdef NO_BACKOFF
     mayLoad = true;
#endif
#ifndef NO_MARKER
     record = token;
#endif
     publish(token)
#ifdef FAIL_UNFENCED
  :: lease == NONE -> record = token
#endif
  :: else
  fi
}

inline abandonScript() {
  abandoned = abandoned | (1 << token);
  if
  :: lease == token ->
     lease = NONE; mayLoad = true
#ifdef ABANDON_MARKS
     ; record = token
#endif
  :: else
  fi
}

proctype replica(byte me) {
  byte token, named, before, load, i, n = 0; bool late;
  do
  :: n < CALLS ->
     atomic { late = repaired; before = lastFailed }
again:
     atomic {                                                          /* lease script */
       if
       :: value -> goto answered
#if defined(NO_BACKOFF) && !defined(ANSWER_ALL)
       :: !value && record != NONE && record == named -> takeError(record); goto answered
       :: !value && (record == NONE || record != named) && lease == NONE -> grant()
#else
       :: !value && record != NONE -> takeError(record); goto answered
       :: !value && record == NONE && lease == NONE -> grant()
#endif
       :: else -> named = lease; goto wait
       fi
     }
     if
     :: broken -> atomic { failScript(); errorAfterRepair = late; assert(!errorAfterRepair) }
     :: !broken -> atomic { if :: lease == token -> value = true; lease = NONE :: else fi }
     :: atomic { abandonScript() }
     fi;
     goto answered;

wait:
     do
     :: outcome[me]?load ->
#ifdef ANY_MESSAGE
        takeError(load); goto answered
#else
        if
        :: load == named -> takeError(load); goto answered
        :: else -> load = NONE
        fi
#endif
#ifndef NO_TIMER
     :: lease != named -> goto again                                   /* the timer: that lease is over */
#endif
     od;

answered:
     atomic { token = NONE; named = NONE; before = NONE; load = NONE; late = false; n++ }
  :: else -> break
  od;
  done++
}

proctype repair() {
  broken = false;
  atomic {                                                             /* invalidate script */
    value = false; lease = NONE; mayLoad = true; lastCounts = false;
#ifndef MARK_APART
    record = NONE
#endif
  }
  repaired = true;
  done++
}

proctype expiry() {
end:
  do
  :: atomic { lease != NONE -> lease = NONE; mayLoad = true }
  :: atomic { record != NONE -> record = NONE; mayLoad = true; lastCounts = false }
  :: done == REPLICAS + 1 -> break
  od
}

init {
  atomic {
    byte r = 0;
    do :: r < REPLICAS -> run replica(r); r++ :: else -> break od;
    run repair(); run expiry()
  }
}
