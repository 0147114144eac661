/* tags: values that are invalidated by tag without being found, and generations that are evicted.

   Rule: one set for each cache has the generation of the whole cache, its floor, and those of tags. A grant's
   number is the clock of the node that has the set, in the lease script, and so before the load: the value's
   stamp. A bump makes the clock the tag's generation. Both go on from the latest generation where the clock has
   not. Who finds no set makes one with a floor just before the clock, a bump with the clock. Who reads a value
   reads the generations after it. A value counts if its stamp is later than the floor and
   later than the tag's generation. A waiter may take the value of the load that it waits for from a message, without asking, if no bump
   that it was told of is as late as the value's stamp, and the stamp is later than what may not have been told:
   the clock at the moment when its messages came back. Messages come on one connection, in the order in which
   they were sent.

   Modelled: two processes, each with a caller that makes calls one after the other, reads the store, or waits for
   the load that holds the lease; one tag; a writer that changes the origin and bumps; a clock that may stand still,
   but not during a load, and is never set back: then a set that is evicted takes along how far numbers have gone; with EVICTED
   the set is evicted once, as a whole; with BROKEN the second process's messages break once, which loses what is
   under way and what is sent until they are confirmed. With CACHED processes keep what they read of the
   generations, as in a cluster, while messages arrive. QUIET: nothing
   changes, and no set is evicted during a load.

   Checked
     olderThanBump   a call that began after a bump returned gets an older value
     olderThanTold   with CACHED: a call gets an older value than the bump its process had been told of, or, when
                     its messages don't arrive, than one that had returned
     loadedTwice     a load is granted although nothing has changed since the last one was stored

   Runs that hold
     run: EVICTED holds, over 1000000 states
     run: BROKEN holds, over 1000000 states (full)
     run: BROKEN,CACHED holds, over 2000000 states (full)
     run: QUIET,EVICTED holds, over 5000 states

   Mutants
   STAMP_LATE: the stamp is the clock after the load
     run: EVICTED,STAMP_LATE fails "olderThanBump"
   TIE_VALID: a value counts if its stamp is not earlier than the generations
     run: EVICTED,TIE_VALID fails "olderThanBump"
   MISSING_OK: where there is no set every value counts
     run: EVICTED,MISSING_OK fails "olderThanBump"
   NO_INVALIDATION: what a process keeps of the generations counts whatever it is told
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
byte value = EMPTY, stamp;          /* in the store */
byte lease = NONE;                  /* the caller that holds it, counted from 1 */
bool there = false;                 /* the set */
byte floor, gen;
byte returned = 0;                  /* the newest version whose bump has returned */
byte stored = EMPTY;                /* the version of the last fill, while nothing has changed */
byte over = 0;

bool behind = false;
bool up[PROCESSES] = true, trusted[PROCESSES] = true;
chan message[PROCESSES] = [4] of { byte, byte, byte };   /* kind, version, stamp or generation */
byte heard[PROCESSES], since[PROCESSES];                 /* the latest bump it was told of; what it may not have been */
byte told[PROCESSES];                                    /* the newest version of a bump that it was told of */
bool known[PROCESSES];                                   /* with CACHED: it keeps generations */
byte keptFloor[PROCESSES], keptGen[PROCESSES];
byte loading, awaited[PROCESSES];                        /* the number of the grant that is alive, or is waited for */
bool woken[PROCESSES];                                   /* a message brought its value */
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

/* The clock, or what comes after the latest generation. */
inline tick(x) {
  x = now;
#ifndef QUIET
  if :: floor >= x -> x = floor + 1 :: else fi;
  if :: gen >= x -> x = gen + 1 :: else fi;
  now = x
#endif
}

/* What the store says now, or what the process keeps. */
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
       f = floor; g = gen;                                     /* 0 if there is none */
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
       :: value != EMPTY && stamp != s -> v = value; s = stamp; goto check   /* one it has not seen */
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
     goto answered;                                             /* for its own callers, who waited from before */
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
     :: lease == NONE -> goto again                             /* the lease's time is over, or messages came back */
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

/* One process's messages. */
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

/* A set that is evicted, and the second process's messages that are lost for a while. */
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
  trusted[1] = false; known[1] = false;                                          /* it is noticed */
  atomic { up[1] = true; behind = true }                                         /* confirmed, and nothing delivered before */
  atomic { since[1] = now; trusted[1] = true; told[1] = returned; behind = false }   /* restored */
#endif
}

init { atomic { run caller(0); run caller(1); run writer(); run ear(0); run ear(1); run world() } }
