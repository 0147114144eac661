/* localtier: a tier of values inside each process, and messages that come late or not at all.

   Rule: If a call doesn't find its value in the tier, it takes a stamp (the key's epoch), and then
   it asks the store. It inserts the store's value only if the epoch is still the same and the tier
   is trusted. A "changed" message bumps the epoch and drops the entry. A "filled" message does
   neither. A waiter may insert the value of a "filled" message if the message names the load that
   the waiter was told to wait for. Invalidate, too, bumps the epoch and drops the entry in its own
   process: once before its script, and once after its script and before it returns. A leader
   inserts its result only if its fill was stored. When a process notices that its subscription is
   broken, it stops trusting its tier. After that the subscription is confirmed, then the tier is
   cleared and the epoch bumped, then the tier is trusted again. While a tier isn't trusted, its
   entries are served as stale values or not at all.

   Modelled: two processes; in each a caller that makes two calls, one after the other; a writer in
   the first process that changes the origin and calls Invalidate; messages that come in order, but
   may come at any later time; one break of the second process's subscription; a lease that may
   expire at any moment. The break loses all messages that are on their way, and all that are
   published until the subscription is confirmed again. The process may notice it at any later time.
   The epoch of a process is counted from the stamp of its only caller. With FEW the first process
   makes one call, and only Invalidate ends a lease before its fill.

   Checked
     olderThanTold       a call gets a value that is older than what its process knew when the call
                         began. The process knows of a change from a message, from its own
                         Invalidate that has returned, or, if its tier is trusted again after a
                         break, because the change came before the subscription was confirmed.
                         If the tier wasn't trusted when the call began, the check is stricter: the
                         call gets a fresh value that is older than an Invalidate that had returned
                         in any process (P11)
     oldAtRest           every call has ended and every message has arrived, and a tier has a value
                         that isn't the origin's any more (P11)
     refusedServed       a later call gets a value whose fill the store refused (P3)
     refusedUndisturbed  a value isn't inserted although nothing has happened since its stamp (P11)

   Runs that hold
     run: holds, over 3000000 states (full)
     run: FEW holds, over 500000 states

   Two parts of the rule are not needed for these checks. The first is the bump before Invalidate's
   script: until Invalidate returns, no check forbids the old value. The second is that nothing is
   inserted while the tier isn't trusted: such an entry would be cleared before the tier is trusted
   again. INSERT_REFUSED breaks only its own check, because the stamp ensures that such an entry is
   dropped when the message arrives.

   Mutants
   NO_EPOCH: a value is inserted even if the epoch has changed
     run: FEW,NO_EPOCH fails "olderThanTold"
     run: NO_EPOCH fails "oldAtRest"
   EPOCH_LATE: the stamp is taken after the store's answer
     run: FEW,EPOCH_LATE fails "olderThanTold"
     run: EPOCH_LATE fails "oldAtRest"
   LOCAL_FIRST: Invalidate bumps and drops only before its script
     run: LOCAL_FIRST fails "olderThanTold"
   NO_FLUSH: the tier is trusted again without clearing it and bumping the epoch
     run: FEW,NO_FLUSH fails "olderThanTold"
   FLUSH_EARLY: the tier is cleared before the subscription is confirmed
     run: FEW,FLUSH_EARLY fails "olderThanTold"
   TRUST_BEFORE_FLUSH: the tier is trusted once the subscription is confirmed, and cleared later
     run: FEW,TRUST_BEFORE_FLUSH fails "olderThanTold"
   UNTRUSTED_FRESH: entries are served as fresh although the tier is not trusted
     run: FEW,UNTRUSTED_FRESH fails "olderThanTold"
   ANY_FILLED: a waiter takes the value of any "filled" message
     run: FEW,ANY_FILLED fails "olderThanTold"
   INSERT_REFUSED: a leader inserts although its fill was refused
     run: FEW,INSERT_REFUSED fails "refusedServed"
   FILLED_BUMPS: "filled" messages bump the epoch, too
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
#define CHANGED 0             /* in place of a load's token: this is a "changed" message */

byte origin = 1;              /* the version of the data at the origin */
byte value = EMPTY;           /* the version that the store has */
byte lease = NONE;            /* the token of the load that has the lease */
bool wanted = false;          /* a caller waits for this load, so its fill sends a message */
byte done = 0;

byte entry[PROCESSES] = EMPTY;                      /* the version that the tier has */
/* What has bumped the epoch since the process's caller took its stamp; NO: nothing has. */
byte bumped[PROCESSES];
byte awaited[PROCESSES];                            /* the token of the load that it waits for */
bool up[PROCESSES] = true;                          /* the subscription works */
bool trusted[PROCESSES] = true;
/* Messages on their way: the token of a load or CHANGED, and a version. */
chan message[PROCESSES] = [4] of { byte, byte };
/* The token and the version of the "filled" message that has woken the caller. */
byte wokenBy[PROCESSES], wokenWith[PROCESSES];

/* The checks use the rest. */
byte changed = 0;             /* the newest version whose invalidate script has run */
byte invalidated = 0;         /* the newest version whose Invalidate has returned */
byte told[PROCESSES];         /* the newest version that the process knows of */
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
       /* The entry is served as a stale value. */
       :: entry[me] != EMPTY && !trusted[me] -> answer(entry[me], told[me]); goto answered
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
       /* A message has come, or the awaited lease is over, which the timer notices. */
       wokenBy[me] != NONE || lease != awaited[me] ->
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
  atomic {                                                             /* messages are lost */
    up[me] = false;
    do :: message[me]?load, version :: empty(message[me]) -> break od;
    load = NONE; version = 0
  }
  trusted[me] = false;                                                 /* the break is noticed */
#ifdef FLUSH_EARLY
  atomic { drop(me) }
#endif
  /* The subscription is confirmed. */
  atomic { up[me] = true; lost = changed }
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

proctype writer() {                                                    /* in process 0 */
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
