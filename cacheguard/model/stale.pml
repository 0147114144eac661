/* stale: values that are served after their TTL, while one process refreshes them or if loads fail.

   Rule: If a call finds a stale value, there are two cases. Either it returns the value at once,
   and its process asks for the lease without waiting. Or it keeps the value in hand for the case
   that the load fails. A fresh value may also be refreshed before its TTL is over. In all these
   cases the request for the lease names the value that the process has seen. If the store has
   another value by then, the lease script returns that value. It checks this before it looks at a
   lease or a record. A refresh stores its result through the lease, like any load. A failed load
   leaves an outcome record in place of its lease, if the lease still has its token. It never writes
   the value. While there is a record, no process loads: calls with a stale value in hand return it,
   and the others get the error. If a load finds that the thing does not exist, and this result is
   not to be kept, the step that ends its lease drops the value. Invalidate (hard) deletes value,
   lease and record in one step. MarkStale (soft) marks the value stale, and deletes lease and
   record, in one step. A process remembers that there is a record. While it does, and has a stale
   value in hand, it doesn't ask the store. It forgets the record when a "changed" message comes,
   and in its own Invalidate and MarkStale. It remembers a record only if none of these happened
   since it took its stamp, which it takes before it asks the store.

   Modelled: two processes, one with one call, the other with two calls, one after the other; a
   refresh that is over before its process makes the next call; a writer in the first process that
   changes or removes the thing at the origin, and then calls Invalidate or MarkStale; loads that
   return or fail; a message that comes late or never. The lease, the record, a process's memory of
   the record, the value's TTL and its stale window may end at any moment. With LASTING the lease,
   the memory and a stale value last until a step ends them. With SUCCESS no load fails.

   Checked
     olderThanHard    a call that began after Invalidate returned gets an older value, fresh or
                      stale
     olderThanSoft    a call that began after MarkStale returned gets an older value as fresh
     servedGone       a call that began after a load had found that the thing does not exist gets an
                      older value
     oldAtRest        all processes are done, and a fresh value isn't what the origin has
     secondLoad       a load is granted although another load has a live lease, or although the
                      value that it is to replace has been replaced already (P1, P8)
     loadInBackoff    a load is granted during the back-off after a failed load (P8)
     heldBackByOld    a call returns a stale value because of the failure of an old load. If the
                      process remembers the failure, old means: the load began before a change of
                      which the process knew. If the store has the record, old means: the load began
                      before a change that had returned when the call began
     errorFromBefore  a call that began after Invalidate or MarkStale returned gets the error of a
                      load that began before it
     valueOverlooked  a call waits or gets an error although the store has a value that the call has
                      not seen

   Runs that hold
     run: holds, over 3000000 states (full)
     run: LASTING holds, over 800000 states

   A process's stamp is the number of changes that it knows of. A leader remembers its own failure
   even if the store refused its record. If the store refused it because of a change, the message
   about the change makes the process forget the failure.

   Mutants
   UNFENCED_REFRESH: a refresh stores its result even if another load has the lease
     run: LASTING,UNFENCED_REFRESH fails "olderThanHard"
   HARD_KEEPS_VALUE: Invalidate only marks the value stale
     run: LASTING,HARD_KEEPS_VALUE fails "olderThanHard"
   HARD_KEEPS_RECORD: Invalidate leaves the record
     run: LASTING,HARD_KEEPS_RECORD fails "errorFromBefore"
   SOFT_KEEPS_LEASE: MarkStale leaves the lease to a running load
     run: LASTING,SUCCESS,SOFT_KEEPS_LEASE fails "olderThanSoft"
   SOFT_KEEPS_RECORD: MarkStale leaves the record
     run: LASTING,SOFT_KEEPS_RECORD fails "heldBackByOld"
   EXTEND_UNFENCED: a failed load writes the old value back as stale, even if it has no lease
     run: LASTING,EXTEND_UNFENCED fails "olderThanHard"
   EXTEND_FRESH: a failed load that has the lease makes the old value fresh again
     run: LASTING,EXTEND_FRESH fails "oldAtRest"
   NO_SEEN: the lease script grants although the store has another value than the one seen
     run: LASTING,NO_SEEN fails "secondLoad"
   LEASE_FIRST: the lease script looks at lease and record before it looks for another value
     run: LASTING,LEASE_FIRST fails "valueOverlooked"
   DROP_UNFENCED: "does not exist" drops the value even if the load has no lease
     run: DROP_UNFENCED fails "secondLoad" (full)
   KEEP_GONE: "does not exist" leaves the stale value
     run: LASTING,KEEP_GONE fails "servedGone"
   FAIL_UNFENCED: a failed load leaves its record even if the lease is gone
     run: LASTING,FAIL_UNFENCED fails "errorFromBefore"
   NO_RECORD: a failed load only ends its lease
     run: LASTING,NO_RECORD fails "loadInBackoff"
   KEEP_MEMORY: a "changed" message does not make a process forget the record
     run: LASTING,KEEP_MEMORY fails "heldBackByOld"
   NO_STAMP: a process remembers a record even if a change came since it asked
     run: LASTING,NO_STAMP fails "heldBackByOld"
   MEMORY_ALONE: if a process remembers a record and has no stale value, it returns the error
     run: LASTING,MEMORY_ALONE fails "errorFromBefore"
*/

#define PROCESSES 2
#define CALLS(p) (1 + p)
#define EMPTY 0
#define NONE 0
#define FIRST 1               /* the token of the load that made the first value */

byte origin = 1;              /* the version of the data at the origin */
byte absent = 0;              /* a set of bits: the versions in which the thing doesn't exist */
byte value = 1;               /* the version that the store has, EMPTY if none */
byte by = FIRST;              /* the value's id: the token of the load that made it */
bool fresh = true;            /* the value's TTL is not over */
/* In Redis lease and record have one name, so only one of them is there at a time. */
byte lease = NONE;            /* the token of the load that has the lease */
byte record = NONE;           /* the token of the failed load that has left the record */
bool memory[PROCESSES];       /* the process remembers that there is a record */
chan message[PROCESSES] = [1] of { byte };     /* "changed" messages on their way */
byte done = 0;

/* The checks use the rest. told is also the stamp. */
byte changes = 0;             /* how many changes the store has carried out */
byte changed = 0;             /* how many of these have returned */
byte told[PROCESSES];         /* of how many of these the process knows */
/* How many changes there had been when the failed load began, for the record and the memory. */
byte recordBorn, memoryBorn[PROCESSES];
byte hard = 0, soft = 0;      /* the newest versions whose Invalidate or MarkStale has returned */
byte gone = 0;                /* the newest version that a load found not to exist */
bool mayLoad = false;         /* the next grant is justified */
bool mayEarly = true;         /* it is justified if the value seen is still there */
bool backoff = false;         /* the last load has just failed, and nothing has changed since */
hidden byte olderThanHard, olderThanSoft, servedGone, oldAtRest, secondLoad, loadInBackoff, heldBackByOld;
hidden byte errorFromBefore, valueOverlooked;

inline answer(version, asFresh) {
  d_step {
    olderThanHard = (version < needHard); assert(!olderThanHard);
    olderThanSoft = (asFresh && version < needSoft); assert(!olderThanSoft);
    servedGone = (version < needGone); assert(!servedGone)
  }
}

inline holdBack(born, known) { heldBackByOld = (born < known); assert(!heldBackByOld) }

inline fail(born) { errorFromBefore = (born < since); assert(!errorFromBefore) }

inline grant() {
  d_step {
    loadInBackoff = backoff; assert(!loadInBackoff);
    secondLoad = !mayLoad && !(mayEarly && by == seen); assert(!secondLoad);
    mayLoad = false; mayEarly = false;
    token = 2 + 2 * me + n; lease = token; began = changes
  }
}

/* The store has a value that the asker hasn't seen. */
#define another (value != EMPTY && by != seen)

inline fillScript() {
  if
#ifdef UNFENCED_REFRESH
  :: lease == token || inHand != EMPTY ->
#else
  :: lease == token ->
#endif
     lease = NONE; value = loaded; by = token; fresh = true; mayLoad = false; mayEarly = true
  :: else
  fi
}

inline dropScript() {
  if
  :: lease == token ->
     lease = NONE; mayLoad = true;
     if :: loaded > gone -> gone = loaded :: else fi;
#ifndef KEEP_GONE
     value = EMPTY; by = NONE; fresh = false
#endif
#ifdef DROP_UNFENCED
  :: lease != token -> value = EMPTY; by = NONE; fresh = false
#endif
  :: else
  fi
}

inline failScript() {
#if defined(EXTEND_UNFENCED)
  if :: inHand != EMPTY -> value = inHand; by = seen; fresh = false :: else fi;
#elif defined(EXTEND_FRESH)
  if :: lease == token && inHand != EMPTY -> value = inHand; by = seen; fresh = true :: else fi;
#endif
  if
#ifdef FAIL_UNFENCED
  :: lease == token || lease == NONE ->
#else
  :: lease == token ->
#endif
     lease = NONE; mayLoad = false; backoff = true;
#ifndef NO_RECORD
     record = token; recordBorn = began
#endif
  :: else
  fi
}

proctype process(byte me) {
  byte needHard, needSoft, needGone, since;         /* the state when the call began */
  byte inHand, seen, stamp, token, began, loaded, n = 0; bool answered;
  do
  :: n < CALLS(me) ->
     atomic {                                                          /* get */
       needHard = hard; needSoft = soft; needGone = gone; since = changed; stamp = told[me];
       inHand = value; seen = by;
       if
       :: value != EMPTY && fresh ->
          answer(value, true);
          if :: goto out :: answered = true fi                         /* or refresh it early */
       :: value != EMPTY && !fresh && memory[me] -> holdBack(memoryBorn[me], told[me]); answer(value, false); goto out
       :: value != EMPTY && !fresh && !memory[me] ->
          /* Served at once, or only if the load fails. */
          if :: answer(value, false); answered = true :: true fi
#ifdef MEMORY_ALONE
       :: value == EMPTY && memory[me] -> fail(memoryBorn[me]); goto out
#endif
       :: else
       fi
     }
ask:
     atomic {                                                          /* lease script */
       if
#ifdef LEASE_FIRST
       :: another && record == NONE && lease == NONE ->
#elif defined(NO_SEEN)
       :: another && seen == NONE ->
#else
       :: another ->
#endif
          inHand = value; seen = by;
          if
          :: answered && fresh -> goto out
          :: !answered && fresh -> answer(inHand, true); goto out
          :: !fresh -> goto ask
          fi
#ifdef LEASE_FIRST
       :: record != NONE ->
#else
       :: !another && record != NONE ->
#endif
          valueOverlooked = (another && !answered); assert(!valueOverlooked);
          if
          :: inHand == EMPTY -> fail(recordBorn)
          :: inHand != EMPTY -> holdBack(recordBorn, since); if :: !answered -> answer(inHand, false) :: else fi
          fi;
          began = recordBorn;
          goto remember
#ifdef LEASE_FIRST
       :: record == NONE && lease != NONE ->
#else
       :: !another && record == NONE && lease != NONE ->
#endif
          valueOverlooked = (another && !answered); assert(!valueOverlooked);
          if
          :: answered -> goto out
          :: !answered -> token = lease; goto wait
          fi
       :: else -> grant()
       fi
     }
     loaded = origin;                                                  /* load */
     if
     :: true -> atomic {
          if :: (absent >> loaded) & 1 -> dropScript() :: else -> fillScript() fi;
          if :: !answered -> answer(loaded, true) :: else fi;
          goto out
        }
#ifndef SUCCESS
     :: true -> atomic { failScript(); if :: !answered && inHand != EMPTY -> answer(inHand, false) :: else fi }
#endif
     fi;

remember:
     atomic {
#ifndef NO_STAMP
       if
       :: stamp == told[me] -> memory[me] = true; memoryBorn[me] = began
       :: else
       fi;
#else
       memory[me] = true; memoryBorn[me] = began;
#endif
       goto out
     }

wait:
     atomic { lease != token || another -> token = NONE; goto ask }

out:
     atomic {
       needHard = 0; needSoft = 0; needGone = 0; since = 0; stamp = 0; answered = false;
       inHand = EMPTY; seen = NONE; token = NONE; began = 0; loaded = 0; n++
     }
  :: else -> break
  od;
  done++
}

inline forget(p, count) {
  told[p] = count;
#ifndef KEEP_MEMORY
  memory[p] = false; memoryBorn[p] = 0
#endif
}

inline publish() {            /* the message may be lost */
  if :: message[1]!changes :: true fi
}

proctype receiver() {
  byte count;
end:
  do
  :: atomic { message[1]?count -> forget(1, count); count = 0 }
  od
}

inline change() { mayLoad = true; backoff = false; changes++; publish() }

proctype writer() {                                                    /* in process 0 */
  if
  :: origin++
  :: atomic { origin++; absent = absent | (1 << origin) }
  fi;
  if
  :: atomic {                                                          /* invalidate script */
#ifndef HARD_KEEPS_VALUE
       value = EMPTY; by = NONE;
#endif
#ifndef HARD_KEEPS_RECORD
       record = NONE; recordBorn = 0;
#endif
       fresh = false; lease = NONE;
       change()
     }
     atomic { forget(0, changes); changed = changes; hard = origin }
  :: atomic {                                                          /* script of MarkStale */
#ifndef SOFT_KEEPS_LEASE
       lease = NONE;
#endif
#ifndef SOFT_KEEPS_RECORD
       record = NONE; recordBorn = 0;
#endif
       fresh = false;
       change()
     }
     atomic { forget(0, changes); changed = changes; soft = origin }
  fi;
  done++
}

proctype expiry() {
end:
  do
  :: atomic { record != NONE || backoff -> record = NONE; recordBorn = 0; backoff = false; mayLoad = true }
  :: atomic { value != EMPTY && fresh -> fresh = false; mayLoad = true }
#ifndef LASTING
  :: atomic { lease != NONE -> lease = NONE; mayLoad = true }
  :: atomic { memory[0] -> memory[0] = false; memoryBorn[0] = 0 }
  :: atomic { memory[1] -> memory[1] = false; memoryBorn[1] = 0 }
  :: atomic { value != EMPTY && !fresh -> value = EMPTY; by = NONE; mayLoad = true }
#endif
  :: done == PROCESSES + 1 -> break
  od
}

init {
  atomic { run process(0); run process(1); run receiver(); run writer(); run expiry() }
  atomic {
    done == PROCESSES + 1 ->
    oldAtRest = (value != EMPTY && fresh && (value != origin || ((absent >> value) & 1))); assert(!oldAtRest)
  }
}
