/* lease: one load per key, and no late fill.

   Rule: the lease script looks at the value again before it grants, and grants only while no lease stands.
   Fill and release act only while the lease carries the load's own token; a lease that is gone refuses, for
   gone may mean invalidated. Fill stores the value and ends the lease in one step, Invalidate deletes value
   and lease in one step. A waiter subscribes before it asks for the lease, and its timer ends with the lease
   it waits for, so that a lost message costs no more than the remaining lease time.

   Modelled: three calls (TWO: two), each in a replica of its own, that start at any moment; a writer that
   changes the origin and invalidates, twice; loads that return, fail, or die with their process; a lease that
   runs out at any moment, also under a load that is only slow; a wake-up message that is lost.

   Checked
     secondLoad           a lease was granted although the one before it was neither ended by its own load
                          without a value, nor run out, nor invalidated (P1)
     olderThanInvalidate  a call that started after Invalidate returned got an older value from the store; one
                          more call comes when all is quiet, so the store never keeps an old value (P3)
     invalid end state    a waiter sleeps for ever (P2)

   Runs that hold
     run: holds, over 7000000 states (full)
     run: TWO holds, over 50000 states
     run: QUIET holds, over 400000 states (full)
     run: TWO,QUIET holds, over 3000 states
   QUIET is a world in which nothing dies, runs out or gets lost, and waiters have no timer: there the
   messages alone must wake everyone.

   Mutants
   GONE_FILLS: fill also when the lease is gone
     run: TWO,GONE_FILLS fails "olderThanInvalidate"
   FENCE_OFF: fill whoever holds the lease
     run: TWO,FENCE_OFF fails "olderThanInvalidate"
   SPLIT_FILL: compare the token in one command, store in the next
     run: TWO,SPLIT_FILL fails "olderThanInvalidate"
   INVALIDATE_KEEPS_LEASE: Invalidate deletes the value alone
     run: TWO,INVALIDATE_KEEPS_LEASE fails "olderThanInvalidate"
   SPLIT_INVALIDATE: Invalidate deletes the value in one command, the lease in the next
     run: TWO,SPLIT_INVALIDATE fails "olderThanInvalidate"
   RELEASE_ANY: release deletes the lease whoever holds it
     run: RELEASE_ANY fails "secondLoad"
   NO_DOUBLE_CHECK: the lease script does not look at the value
     run: NO_DOUBLE_CHECK fails "secondLoad"
   NO_TIMER: a waiter relies on the message alone
     run: NO_TIMER fails "invalid end state"
   SUBSCRIBE_LATE: a waiter subscribes after it was told "held"
     run: QUIET,SUBSCRIBE_LATE fails "invalid end state"
*/

#ifdef TWO
#define CALLS 2
#else
#define CALLS 3
#endif
#define WRITES 2
#define EMPTY 255
#define NONE 0

byte origin = 0;              /* the version of the data at the origin */
byte value = EMPTY;           /* the version the store holds */
byte lease = NONE;            /* the token of the load that holds the lease */
byte tokens = 0;
bool woken[CALLS];
byte invalidated = 0;         /* the newest version whose Invalidate has returned */
byte done = 0;

bool mayLoad = true;          /* for the checks: the next grant is justified */
hidden byte secondLoad, olderThanInvalidate;

inline grant() {
  d_step { secondLoad = !mayLoad; assert(!secondLoad); mayLoad = false; tokens++; token = tokens; lease = token }
}

inline answer() {             /* the call returns what the store holds; since: what had returned when it began */
  d_step { olderThanInvalidate = (value < since); assert(!olderThanInvalidate) }
}

inline publish() {            /* each copy of the message may be lost */
  i = 0;
  do
  :: i < CALLS -> if :: woken[i] = true
#ifndef QUIET
                     :: true
#endif
                  fi; i++
  :: else -> break
  od;
  i = 0
}

proctype call(byte me) {
  byte since, token, loaded, holder, i; bool mine;
  since = invalidated;
again:
  atomic { if :: value != EMPTY -> answer(); goto out :: else fi }     /* get */
  atomic {                                                             /* lease script */
#ifndef SUBSCRIBE_LATE
    woken[me] = false;
#endif
    if
#ifndef NO_DOUBLE_CHECK
    :: value != EMPTY -> answer(); goto out
    :: value == EMPTY && lease == NONE -> grant()
#else
    :: lease == NONE -> grant()
#endif
    :: else -> holder = lease; goto wait
    fi
  }

  loaded = origin;                                                     /* load */
  if
  :: true ->
#ifdef SPLIT_FILL
     mine = (lease == token);
#endif
     atomic {                                                          /* fill script */
#if defined(GONE_FILLS)
       mine = (lease == token || lease == NONE);
#elif defined(FENCE_OFF)
       mine = true;
#elif !defined(SPLIT_FILL)
       mine = (lease == token);
#endif
       if :: mine -> value = loaded; lease = NONE; publish() :: else fi
     }
  :: true ->                                                           /* the load failed: release script */
     atomic {
       if
       :: lease == token -> lease = NONE; mayLoad = true; publish()
#ifdef RELEASE_ANY
       :: lease != token -> lease = NONE
#endif
       :: else
       fi
     }
#ifndef QUIET
  :: true                                                              /* the process died, the lease stays */
#endif
  fi;
  goto out;

wait:
#ifdef SUBSCRIBE_LATE
  woken[me] = false;
#endif
  if
  :: woken[me]
#if !defined(NO_TIMER) && !defined(QUIET)
  :: lease != holder                                                   /* the timer: that lease is over */
#endif
  fi;
  holder = NONE;
  goto again;

out:
  atomic { since = 0; token = NONE; loaded = 0; holder = NONE; mine = false; done++ }
}

proctype writer() {
  byte n = 0, i;
  do
  :: n < WRITES ->
     origin++;
#ifdef SPLIT_INVALIDATE
     atomic { value = EMPTY; mayLoad = true }
#endif
     atomic {                                                          /* invalidate script */
#ifndef SPLIT_INVALIDATE
       value = EMPTY;
#endif
       mayLoad = true;
#ifndef INVALIDATE_KEEPS_LEASE
       lease = NONE;
#endif
       publish()
     }
     invalidated = origin; n++
  :: else -> break
  od;
  done++
}

proctype expiry() {
end:
  do
#ifndef QUIET
  :: atomic { lease != NONE -> lease = NONE; mayLoad = true }
#endif
  :: done == CALLS + 1 -> break
  od
}

init {
  byte since, c = 0;
  atomic {
    do :: c < CALLS -> run call(c); c++ :: else -> break od;
    run writer(); run expiry()
  }
  atomic { done == CALLS + 1 -> since = invalidated; answer() }        /* one more call */
}
