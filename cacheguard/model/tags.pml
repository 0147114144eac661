/* tags: values that are invalidated by tag without being found, and generations that are evicted.

   Rule: Each cache has a set of generations: one for each tag, and one for the whole cache, which
   is called the floor. The lease script reads the clock of the node that has the set. This time is
   the number of the grant, and the stamp of the value that the grant's load brings. So the stamp is
   from before the load. A bump sets the generation of a tag to the time of the clock. If the clock
   isn't later than the latest generation, stamps and bumps get the number after that generation. If
   there is no set, a grant or a read makes one with a floor just before the clock, and a bump makes
   one with a floor at the clock. A process that reads a value reads the generations after the
   value. A value is valid if its stamp is later than the floor and later than the tag's generation.
   A waiter may take the value of the awaited load from a message, without asking the store, in one
   case: the stamp is later than every bump of which the process was told, and later than every bump
   of which it may not have been told. The latter bumps came before the moment when its messages
   came back, and the process compares the stamp with the clock of that moment. Messages come on one
   connection, in the order in which they were sent.

   Modelled: two processes, each with a caller that makes its calls one after the other, and reads
   the store or waits for the load that has the lease; one tag; a writer that changes the origin and
   bumps; a clock that may stand still, but not during a load, and that is never set back. (If it
   were set back, the eviction of the set would also lose the latest number.) With EVICTED the set
   is evicted once, as a whole. With BROKEN the second process's messages break once. This loses the
   messages on their way, and those that are sent until the connection is confirmed again. With
   CACHED a process keeps the generations that it has read while messages arrive, as in a cluster.
   With QUIET nothing changes, and the set isn't evicted during a load.

   Checked
     olderThanBump   a call that began after a bump returned gets an older value
     olderThanTold   with CACHED: a call gets an older value than the newest bump of which its
                     process had been told when the call began. If messages didn't arrive then, the
                     newest bump that had returned counts
     loadedTwice     a load is granted although nothing has changed since the last load was stored

   Runs that hold
     run: EVICTED holds, over 1000000 states
     run: BROKEN holds, over 1000000 states (full)
     run: BROKEN,CACHED holds, over 2000000 states (full)
     run: QUIET,EVICTED holds, over 5000 states

   Mutants
   STAMP_LATE: the stamp is the clock after the load
     run: EVICTED,STAMP_LATE fails "olderThanBump"
   TIE_VALID: a value is valid if its stamp is not earlier than the generations
     run: EVICTED,TIE_VALID fails "olderThanBump"
   MISSING_OK: if there is no set, every value is valid
     run: EVICTED,MISSING_OK fails "olderThanBump"
   NO_INVALIDATION: a process keeps its generations even if it is told of a bump
     run: BROKEN,CACHED,NO_INVALIDATION fails "olderThanTold"
   FLOOR_LATE: a grant that finds no set makes one with the clock as its floor
     run: QUIET,EVICTED,FLOOR_LATE fails "loadedTwice"
   MESSAGE_UNCHECKED: a waiter takes any value that a message brings
     run: EVICTED,MESSAGE_UNCHECKED fails "olderThanBump"
   SINCE_IGNORED: a waiter forgets that messages may have been lost
     run: BROKEN,SINCE_IGNORED fails "olderThanBump"
*/

#define PROCESSES 2
#define CALLS(p) (1 + p)
#define BUMPS 1
#define EMPTY 255
#define NONE 0
#define FILLED 1
#define BUMPED 2

byte origin = 0, now = 2;           /* the version of the data; the clock */
byte value = EMPTY, stamp;          /* the value in the store, and its stamp */
byte lease = NONE;                  /* the caller that has it, counted from 1 */
bool there = false;                 /* there is a set */
byte floor, gen;                    /* the generations of the whole cache and of the tag */
byte returned = 0;                  /* the newest version whose bump has returned */
byte stored = EMPTY;                /* with QUIET: the version of the last fill */
byte over = 0;                      /* how many callers and writers have ended */

/* The second process's connection is confirmed, but the process hasn't noticed this yet. */
bool behind = false;
bool up[PROCESSES] = true, trusted[PROCESSES] = true;
chan message[PROCESSES] = [4] of { byte, byte, byte };   /* kind, version, stamp or generation */
/* heard: the latest bump of which the process was told. since: the clock when its messages came
   back; the process may not have been told of earlier bumps. */
byte heard[PROCESSES], since[PROCESSES];
byte told[PROCESSES];                                    /* the newest version of these bumps */
bool known[PROCESSES];                                   /* with CACHED: it keeps generations */
byte keptFloor[PROCESSES], keptGen[PROCESSES];
/* The numbers of two grants: the last one, and the one for which a process waits. */
byte loading, awaited[PROCESSES];
bool woken[PROCESSES];                                   /* a message has brought the value */
byte wokenWith[PROCESSES], wokenStamp[PROCESSES];
hidden byte olderThanBump, olderThanTold, loadedTwice;

inline publish(kind, version, at) {
  k = 0;
  do
  :: k < PROCESSES -> if :: up[k] -> message[k]!kind, version, at :: else fi; k++
  :: else -> break
  od;
  k = 0
}

/* Sets x to the clock, or to the number after the latest generation if that is larger. */
inline tick(x) {
  x = now;
#ifndef QUIET
  if :: floor >= x -> x = floor + 1 :: else fi;
  if :: gen >= x -> x = gen + 1 :: else fi;
  now = x
#endif
}

/* Sets f and g to the generations that the process keeps, or else to those in the store. */
inline generations(f, g) {
  atomic {
    f = 0; g = 0;
    if
#ifdef CACHED
    :: known[me] && trusted[me] -> f = keptFloor[me]; g = keptGen[me]
    :: else ->
#else
    :: true ->
#endif
#if defined(EVICTED) && !defined(MISSING_OK)
       if :: !there -> there = true; floor = now - 1 :: else fi;
#endif
       f = floor; g = gen;                                     /* 0 if there are none */
#ifdef CACHED
       if :: trusted[me] -> known[me] = true; keptFloor[me] = f; keptGen[me] = g :: else fi
#endif
    fi
  }
}

#ifdef TIE_VALID
#define counts(s, f, g) (s >= f && s >= g)
#else
#define counts(s, f, g) (s > f && s > g)
#endif

inline take(v) {
#ifdef CACHED
  olderThanTold = (v < bound); assert(!olderThanTold)
#else
  olderThanBump = (v < bound); assert(!olderThanBump)
#endif
}

proctype caller(byte me) {
  byte v, s, f, g, k, bound, n = 0;
  do
  :: n < CALLS(me) ->
     atomic {
       bound = returned;
#ifdef CACHED
       if :: trusted[me] -> bound = told[me] :: else fi
#endif
     }
     if
     :: atomic { value != EMPTY -> v = value; s = stamp };      /* GET, and then the generations */
        generations(f, g);
        if :: atomic { counts(s, f, g) -> take(v); goto answered } :: else fi
     :: value == EMPTY
     fi;
again:
     atomic {                                                   /* lease script */
       if
       /* The store has a value that the caller hasn't seen. */
       :: value != EMPTY && stamp != s -> v = value; s = stamp; goto check
       :: (value == EMPTY || stamp == s) && lease == NONE ->
          loadedTwice = (stored != EMPTY && stored == origin); assert(!loadedTwice);
          lease = me + 1;
          if
          :: !there -> there = true; s = now;
#ifdef FLOOR_LATE
             floor = now
#else
             floor = now - 1
#endif
          :: there -> tick(s)
          fi;
          loading = s
       :: (value == EMPTY || stamp == s) && lease != NONE -> woken[me] = false; awaited[me] = loading; goto wait
       fi
     }
     v = origin;                                                /* load */
     atomic {                                                   /* fill script */
       if :: now <= s -> now = s + 1 :: else fi;
#ifdef STAMP_LATE
       s = now;
#endif
       value = v; stamp = s; lease = NONE;
#ifdef QUIET
       stored = v;
#endif
       publish(FILLED, v, s)
     };
     goto answered;                                             /* the caller came before it */
check:
     generations(f, g);
     if :: atomic { counts(s, f, g) -> take(v); goto answered } :: else -> goto again fi;
wait:
     if
     :: atomic { woken[me] -> v = wokenWith[me]; s = wokenStamp[me]; woken[me] = false };
        if
#ifdef MESSAGE_UNCHECKED
        :: atomic { true -> take(v) }
#elif defined(SINCE_IGNORED)
        :: atomic { s > heard[me] -> take(v) }
        :: s <= heard[me] -> goto check
#else
        :: atomic { s > heard[me] && s > since[me] -> take(v) }
        :: s <= heard[me] || s <= since[me] -> goto check
#endif
        fi
     :: lease == NONE -> goto again                             /* the awaited lease is over */
     fi;
answered:
     atomic { v = 0; s = 0; f = 0; g = 0; bound = 0; woken[me] = false; awaited[me] = 0; wokenWith[me] = 0; wokenStamp[me] = 0; n++ }
  :: else -> break
  od;
  over++
}

proctype writer() {
#ifndef QUIET
  byte i = 0, k, at;
  do
  :: i < BUMPS ->
     origin++;
     atomic {                                                   /* bump script */
       if :: !there -> there = true; floor = now; at = now :: there -> tick(at) fi;
       gen = at;
       publish(BUMPED, origin, gen)
     };
     returned = origin; i++
  :: else -> break
  od;
#endif
  over++
}

/* Receives the messages of one process. */
proctype ear(byte me) {
  byte kind, version, at;
end:
  do
  :: atomic { nempty(message[me]) && !(me == 1 && behind) -> message[me]?kind, version, at;
       if
#ifndef QUIET
       :: kind == BUMPED ->
          if :: at > heard[me] -> heard[me] = at :: else fi;
          if :: version > told[me] -> told[me] = version :: else fi;
#ifndef NO_INVALIDATION
          known[me] = false
#endif
#endif
       :: kind == FILLED && at == awaited[me] -> woken[me] = true; wokenWith[me] = version; wokenStamp[me] = at
       :: kind == FILLED && at != awaited[me]
       fi;
       kind = 0; version = 0; at = 0
     }
  od
}

/* Evicts the set once, and breaks the second process's messages once. */
proctype world() {
  skip;
#ifdef EVICTED
end0:
#ifdef QUIET
  atomic { there && lease == NONE -> there = false; floor = 0; stored = EMPTY }
#else
  atomic { there -> there = false; floor = 0; gen = 0 }
#endif
#endif
#ifdef BROKEN
  atomic { up[1] = false;
    do :: message[1]?_, _, _ :: empty(message[1]) -> break od }
  trusted[1] = false; known[1] = false;                              /* the break is noticed */
  atomic { up[1] = true; behind = true }                             /* it is confirmed again */
  /* The process takes up its messages again. */
  atomic { since[1] = now; trusted[1] = true; told[1] = returned; behind = false }
#endif
}

init { atomic { run caller(0); run caller(1); run writer(); run ear(0); run ear(1); run world() } }
