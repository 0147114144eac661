/* stale: values that are served after their time, while one process refreshes them or when loads fail.

   Rule: a stale value is returned at once, and its process asks for the lease without waiting, or it is kept in
   hand for the case that the load fails. A value may also be refreshed before its time. Either way the lease is
   asked for in spite of the value seen, which is named: the lease script grants only if no other value stands
   there by now, and looks at that before it looks at a lease or a record. A refresh fills through the lease like
   any load. A load that failed leaves an outcome record in the lease's place, while it carries its token, and
   never writes the value; while the record stands nobody loads, those with a stale value in hand serve it, the
   others get the error. A load that found "does not exist" and is not to keep that drops the value in the step
   that ends its lease. Invalidate (hard) deletes value, lease and record in one step, MarkStale (soft) marks
   the value stale and deletes lease and record in one step. A process remembers that a record stands, and asks
   nobody while it has a stale value in hand; it forgets that when a "changed" message comes and in its own
   Invalidate and MarkStale, and it remembers only if none came since before it asked (its stamp).

   Modelled: two processes, one with one call and one with two, one after the other; the refresh that a call
   begins is over when its process makes the next; a writer in the first process that changes the thing at the
   origin, or removes it, and invalidates, hard or soft; loads return or fail; lease, record, memory and both of
   the value's times run out at any moment; a message comes late or never. LASTING: lease, memory and a stale
   value last until something ends them. SUCCESS: no load fails.

   Checked
     olderThanHard    a call that began after Invalidate returned gets an older value, stale or not
     olderThanSoft    one that began after MarkStale returned gets an older value as fresh
     servedGone       one that began after a load had found that the thing does not exist gets an older value
     oldAtRest        when all is quiet, a fresh value is not what the origin holds
     secondLoad       a load is granted although one runs whose lease is alive, or although the value it is to
                      replace has been replaced (P1, P8)
     loadInBackoff    a load is granted although the last one failed and its back-off is on (P8)
     heldBackByOld    a call makes do with a stale value because of the failure of a load that began before an
                      Invalidate or MarkStale of which its process knew, or which had returned if the store
                      says so
     errorFromBefore  a call that began after Invalidate or MarkStale returned gets the error of a load from
                      before it
     valueOverlooked  a call waits or gets an error although a value that it has not seen stands in the store

   Runs that hold
     run: holds, over 3000000 states (full)
     run: LASTING holds, over 800000 states

   The stamp of a process counts the changes that it knows of. A leader remembers its own failure whether or not
   its record was accepted: if it wasn't, because of a change, the message makes the process forget.

   Mutants
   UNFENCED_REFRESH: a refresh stores whoever holds the lease
     run: LASTING,UNFENCED_REFRESH fails "olderThanHard"
   HARD_KEEPS_VALUE: Invalidate only marks the value stale
     run: LASTING,HARD_KEEPS_VALUE fails "olderThanHard"
   HARD_KEEPS_RECORD: Invalidate leaves the record
     run: LASTING,HARD_KEEPS_RECORD fails "errorFromBefore"
   SOFT_KEEPS_LEASE: MarkStale leaves a running load its lease
     run: LASTING,SUCCESS,SOFT_KEEPS_LEASE fails "olderThanSoft"
   SOFT_KEEPS_RECORD: MarkStale leaves the record
     run: LASTING,SOFT_KEEPS_RECORD fails "heldBackByOld"
   EXTEND_UNFENCED: a failed load writes the old value back, stale, whoever holds the lease
     run: LASTING,EXTEND_UNFENCED fails "olderThanHard"
   EXTEND_FRESH: a failed load makes the old value fresh again, while it holds the lease
     run: LASTING,EXTEND_FRESH fails "oldAtRest"
   NO_SEEN: the lease script grants although another value than the one seen stands there
     run: LASTING,NO_SEEN fails "secondLoad"
   LEASE_FIRST: the lease script looks at lease and record before it looks for another value
     run: LASTING,LEASE_FIRST fails "valueOverlooked"
   DROP_UNFENCED: "does not exist" drops the value whoever holds the lease
     run: DROP_UNFENCED fails "secondLoad" (full)
   KEEP_GONE: "does not exist" leaves the stale value
     run: LASTING,KEEP_GONE fails "servedGone"
   FAIL_UNFENCED: a failed load leaves its record also when the lease is gone
     run: LASTING,FAIL_UNFENCED fails "errorFromBefore"
   NO_RECORD: a failed load only ends its lease
     run: LASTING,NO_RECORD fails "loadInBackoff"
   KEEP_MEMORY: a "changed" message does not make a process forget the record
     run: LASTING,KEEP_MEMORY fails "heldBackByOld"
   NO_STAMP: a process remembers a record whatever came since it asked
     run: LASTING,NO_STAMP fails "heldBackByOld"
   MEMORY_ALONE: a process that remembers a record answers with its error where it has no stale value
     run: LASTING,MEMORY_ALONE fails "errorFromBefore"
*/

#define PROCESSES 2
#define CALLS(p) (1 + p)
#define EMPTY 0
#define NONE 0
#define FIRST 1               /* the load that made the first value */

byte origin = 1;              /* the version of the data at the origin; */
byte absent = 0;              /* bit set of versions: the thing does not exist */
byte value = 1;               /* the version the store holds, EMPTY if none; */
byte by = FIRST;              /* its id: the token of the load that made it; */
bool fresh = true;            /* before its time is over */
byte lease = NONE;            /* the lease's name holds the token of a load that runs, */
byte record = NONE;           /* or an outcome record: the token of a load that failed */
bool memory[PROCESSES];       /* the process remembers that a record stands */
chan message[PROCESSES] = [1] of { byte };     /* "changed", on their way */
byte done = 0;

byte changes = 0;             /* for the checks: how many invalidate scripts were run; */
byte changed = 0;             /* how many had returned; */
byte told[PROCESSES];         /* of how many the process knows: its stamp too */
byte recordBorn, memoryBorn[PROCESSES];             /* how many there were when the failed load began */
byte hard = 0, soft = 0;      /* the newest version whose Invalidate, whose MarkStale has returned */
byte gone = 0;                /* the newest version that a load found not to exist */
bool mayLoad = false;         /* the next grant is justified, */
bool mayEarly = true;         /* or justified if the value seen stands there */
bool backoff = false;         /* the last load failed a moment ago, and nothing changed since */
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

#define another (value != EMPTY && by != seen)      /* a value that the asker has not seen */

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
  byte needHard, needSoft, needGone, since;         /* what had returned when the call began */
  byte inHand, seen, stamp, token, began, loaded, n = 0; bool answered;
  do
  :: n < CALLS(me) ->
     atomic {                                                          /* get */
       needHard = hard; needSoft = soft; needGone = gone; since = changed; stamp = told[me];
       inHand = value; seen = by;
       if
       :: value != EMPTY && fresh ->
          answer(value, true);
          if :: goto out :: answered = true fi                         /* refresh before its time */
       :: value != EMPTY && !fresh && memory[me] -> holdBack(memoryBorn[me], told[me]); answer(value, false); goto out
       :: value != EMPTY && !fresh && !memory[me] ->
          if :: answer(value, false); answered = true :: true fi       /* at once, or only if the load fails */
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

inline publish() {            /* each copy of the message may be lost */
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

proctype writer() {                                                    /* lives in process 0 */
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
