/* localtier: a tier of values inside each process, and messages that come late or not at all.

   Rule: a call that doesn't find its value in the tier takes a stamp (the key's epoch) before it asks the store,
   and what it gets is inserted only while the epoch is still the same and the tier is trusted. A "changed"
   message bumps the epoch and drops the entry; "filled" messages do not, and a waiter may insert the value that
   one brings if it names the load that the waiter was told to wait for. Invalidate bumps and drops in its own
   process as well, before its script and again after it, before it returns. A leader inserts only if its fill
   was stored. When the subscription breaks, the tier is no longer trusted as soon as that is noticed; then the
   order is: subscription confirmed, then clear and bump, then trusted. While it isn't trusted, its entries are
   served as stale or not at all.

   Modelled: two processes, each with a caller that makes two calls, one after the other; a writer in the first
   process that changes the origin and invalidates; messages that come in order, but any time later; one break
   of the second process's subscription, which loses what is under way and what is published until it is
   confirmed again, and which is noticed any time later; a lease that runs out at any moment. The epoch is
   counted from the stamp of the process's one caller. FEW: the first process makes one call, and only the
   Invalidate ends a lease before its time.

   Checked
     olderThanTold       a call gets a value older than what its process had been told when the call began:
                         by a message, by its own Invalidate that returned, or, once it trusts its tier again
                         after a break, by whoever invalidated before the subscription was confirmed; or a call
                         that began while the tier was not trusted gets a value, not marked as stale, that is
                         older than an Invalidate which had returned anywhere (P11)
     oldAtRest           when all is quiet and every message has arrived, a tier holds what the origin doesn't
                         hold any more (P11)
     refusedServed       a newcomer gets a value whose fill the store refused (P3)
     refusedUndisturbed  a value is not inserted although nothing happened since its stamp (P11)

   Runs that hold
     run: holds, over 3000000 states (full)
     run: FEW holds, over 500000 states

   Two parts of the rule are not needed for these checks. What is served between the bump before Invalidate's
   script and the one after it is nobody's concern yet, for Invalidate has not returned. And what would be
   inserted while the tier isn't trusted is cleared before it is trusted again. INSERT_REFUSED breaks no other
   check than its own: the stamp alone sees to it that such an entry goes when the message arrives.

   Mutants
   NO_EPOCH: insert whatever the epoch is
     run: FEW,NO_EPOCH fails "olderThanTold"
     run: NO_EPOCH fails "oldAtRest"
   EPOCH_LATE: take the stamp after the answer of the store
     run: FEW,EPOCH_LATE fails "olderThanTold"
     run: EPOCH_LATE fails "oldAtRest"
   LOCAL_FIRST: Invalidate bumps and drops before its script only
     run: LOCAL_FIRST fails "olderThanTold"
   NO_FLUSH: trusted again without clear and bump
     run: FEW,NO_FLUSH fails "olderThanTold"
   FLUSH_EARLY: clear and bump before the subscription is confirmed
     run: FEW,FLUSH_EARLY fails "olderThanTold"
   TRUST_BEFORE_FLUSH: trusted as soon as the subscription is confirmed, clear and bump after that
     run: FEW,TRUST_BEFORE_FLUSH fails "olderThanTold"
   UNTRUSTED_FRESH: entries are served as fresh although the tier is not trusted
     run: FEW,UNTRUSTED_FRESH fails "olderThanTold"
   ANY_FILLED: a waiter takes the value of any "filled" message
     run: FEW,ANY_FILLED fails "olderThanTold"
   INSERT_REFUSED: a leader inserts although its fill was refused
     run: FEW,INSERT_REFUSED fails "refusedServed"
   FILLED_BUMPS: "filled" messages bump like "changed" ones
     run: FEW,FILLED_BUMPS fails "refusedUndisturbed"
*/

#define PROCESSES 2
#ifdef FEW
#define CALLS(p) (1 + p)
#else
#define CALLS(p) 2
#endif
#define ALL (PROCESSES + 2)
#define EMPTY 0
#define NONE 0
#define NO 0
#define BY_CHANGE 1
#define BY_FILLED 2
#define CHANGED 0             /* in the place of a load's token: the message is no "filled" */

byte origin = 1;              /* the version of the data at the origin */
byte value = EMPTY;           /* the version the store holds */
byte lease = NONE;            /* the token of the load that holds the lease */
bool wanted = false;          /* somebody waits for it, so its fill is told */
byte done = 0;

byte entry[PROCESSES] = EMPTY;                      /* the version the tier holds */
byte bumped[PROCESSES];                             /* the epoch since its caller took the stamp, and by what */
byte awaited[PROCESSES];                            /* the token of the load that its caller waits for */
bool up[PROCESSES] = true;                          /* the subscription */
bool trusted[PROCESSES] = true;
chan message[PROCESSES] = [4] of { byte, byte };    /* on their way: token or CHANGED, version */
byte wokenBy[PROCESSES], wokenWith[PROCESSES];      /* the "filled" message it was woken by: token, version */

byte changed = 0;             /* for the checks: the newest version that an invalidate script has told of */
byte invalidated = 0;         /* the newest version whose Invalidate has returned */
byte told[PROCESSES];         /* the newest version the process knows of */
bool ofRefused[PROCESSES];    /* the entry is the value of a refused fill */
hidden byte olderThanTold, oldAtRest, refusedServed, refusedUndisturbed;

inline drop(p) { bumped[p] = BY_CHANGE; entry[p] = EMPTY; ofRefused[p] = false }

inline learn(p, version) { if :: version > told[p] -> told[p] = version :: else fi }

inline answer(version, bound) {
  olderThanTold = (version < bound); assert(!olderThanTold)
}

inline publish(token, version) {
  k = 0;
  do
  :: k < PROCESSES -> if :: up[k] -> message[k]!token, version :: else fi; k++
  :: else -> break
  od;
  k = 0
}

proctype caller(byte me) {
  byte since, token, v, k, n = 0; bool refused;
  do
  :: n < CALLS(me) ->
     atomic {                                                          /* the tier */
       bumped[me] = NO; since = told[me];
       if :: !trusted[me] && invalidated > since -> since = invalidated :: else fi;
       if
#ifdef UNTRUSTED_FRESH
       :: entry[me] != EMPTY ->
#else
       :: entry[me] != EMPTY && trusted[me] ->
#endif
          refusedServed = ofRefused[me]; assert(!refusedServed);
          answer(entry[me], since);
          goto answered
       :: entry[me] != EMPTY && !trusted[me] -> answer(entry[me], told[me]); goto answered    /* as stale */
       :: entry[me] == EMPTY || !trusted[me]
       fi
     }
again:
     atomic {                                                          /* get, and lease script */
       if
       :: value != EMPTY -> v = value; goto found
       :: value == EMPTY && lease == NONE -> token = 1 + 2 * me + n; lease = token
       :: value == EMPTY && lease != NONE -> awaited[me] = lease; wanted = true; goto wait
       fi
     }
     v = origin;                                                       /* load */
     atomic {                                                          /* fill script */
       if
       :: lease == token -> value = v; if :: wanted -> publish(token, v) :: else fi; lease = NONE; wanted = false
       :: else -> refused = true
       fi
     }
found:
#ifdef EPOCH_LATE
     bumped[me] = NO;
#endif
     atomic {
       answer(v, since);
       if
#ifndef INSERT_REFUSED
       :: refused
#endif
#ifdef NO_EPOCH
       :: !refused && trusted[me] ->
#elif defined(INSERT_REFUSED)
       :: trusted[me] && bumped[me] == NO ->
#else
       :: !refused && trusted[me] && bumped[me] == NO ->
#endif
          entry[me] = v; ofRefused[me] = refused
       :: else -> refusedUndisturbed = (bumped[me] == BY_FILLED); assert(!refusedUndisturbed)
       fi;
       goto answered
     }

wait:
     atomic {
       wokenBy[me] != NONE || lease != awaited[me] ->                  /* a message, or the timer: that lease is over */
#ifdef ANY_FILLED
       if :: wokenBy[me] != NONE -> v = wokenWith[me] :: else fi;
#else
       if :: wokenBy[me] == awaited[me] -> v = wokenWith[me] :: else fi;
#endif
       awaited[me] = NONE; wokenBy[me] = NONE; wokenWith[me] = EMPTY;
       if :: v != EMPTY -> goto found :: else -> goto again fi
     }

answered:
     atomic { since = 0; token = NONE; v = EMPTY; refused = false; n++ }
  :: else -> break
  od;
  done++
}

proctype receiver(byte me) {
  byte load, version;
end:
  do
  :: atomic {
       message[me]?load, version ->
       if
       :: load == CHANGED -> drop(me); learn(me, version)
       :: else ->
#ifdef FILLED_BUMPS
          if :: bumped[me] == NO -> bumped[me] = BY_FILLED :: else fi;
#endif
          if :: awaited[me] != NONE -> wokenBy[me] = load; wokenWith[me] = version :: else fi
       fi;
       load = NONE; version = 0
     }
  od
}

proctype link(byte me) {
  byte load, version, lost;
  atomic {                                                             /* what is under way is lost */
    up[me] = false;
    do :: message[me]?load, version :: empty(message[me]) -> break od;
    load = NONE; version = 0
  }
  trusted[me] = false;                                                 /* noticed */
#ifdef FLUSH_EARLY
  atomic { drop(me) }
#endif
  atomic { up[me] = true; lost = changed }                             /* confirmed */
#ifdef TRUST_BEFORE_FLUSH
  atomic { trusted[me] = true; learn(me, lost) }
  atomic { drop(me) }
#else
#if !defined(NO_FLUSH) && !defined(FLUSH_EARLY)
  atomic { drop(me) }
#endif
  atomic { trusted[me] = true; learn(me, lost) }
#endif
  done++
}

proctype writer() {                                                    /* lives in process 0 */
  byte k;
  atomic { origin++; drop(0) }
  atomic {                                                             /* invalidate script */
    value = EMPTY; lease = NONE; wanted = false; changed = origin;
    publish(CHANGED, origin)
  }
  atomic {
#ifndef LOCAL_FIRST
    drop(0);
#endif
    learn(0, origin); invalidated = origin
  }
  done++
}

proctype expiry() {
end:
  do
#ifndef FEW
  :: atomic { lease != NONE -> lease = NONE; wanted = false }
#endif
  :: done == ALL -> break
  od
}

init {
  atomic {
    run caller(0); run caller(1); run receiver(0); run receiver(1); run writer(); run expiry(); run link(1)
  }
  atomic {
    done == ALL && empty(message[0]) && empty(message[1]) ->
    oldAtRest = (entry[0] != EMPTY && entry[0] != origin) || (entry[1] != EMPTY && entry[1] != origin);
    assert(!oldAtRest)
  }
}
