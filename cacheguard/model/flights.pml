/* flights: the callers of one process that share the work for one key.

   Rule: a caller joins the key's open flight, or opens one. Its work looks the value up, asks for the lease, and
   loads, or waits for who holds the lease. Invalidate seals the open flight before its script and again after
   it, before it returns; a "changed" message seals it too: newcomers open another. Callers may leave at any
   moment; the last one to leave seals the flight in the same step and then cancels its work, so nobody joins work
   that is being cancelled. A load renews its lease. Told "gone", it seals its flight and goes on: those who had
   joined get its result, the fill is refused. Told "other", it seals its flight and stops, and the flight waits
   for the new holder. No flight begins again more than twice because of that or of a "changed" message: then it
   loads without a lease, and stores nothing.

   Modelled: two callers in one process, each with one call, who come at any moment and stay or leave; a writer
   in it that changes the origin and invalidates; loads that return or fail; a lease that runs out, and is taken
   by the process's other flight, at any moment; renewals that come at any moment or never; messages that come
   late or never. A message never carries a result here. In this world flights don't begin again at all.
   ELSEWHERE: instead of the writer another process changes the origin, and invalidates, takes the lease, fills
   or hangs, twice in all; no load fails. ONE: one caller, and its process's writer, and another process that
   does the same without end; a flight begins again twice, as it should.

   Checked
     olderThanTold      a caller gets a value from a load that began before a change of which its process had been
                        told when the call began: by its own Invalidate that returned, by a message, or by the
                        renewal of that very load (P3)
     lostToCaller       a caller gets as its result that the lease was lost (P5)
     abandonedToCaller  a caller that stays gets as its result that all callers have left (P5)
     restartedTooOften  a flight begins again more than it may, and once more without a lease
     invalid end state  a caller that stays gets no result

   Runs that hold
     run: holds, over 1500000 states (full)
     run: ELSEWHERE holds, over 5000000 states (full)
     run: ONE holds, over 200000 states

   The seal before Invalidate's script is not needed for these checks: until Invalidate returns, a newcomer may
   join what began before it, and the seal after the script turns all later ones away. It spares those who come
   in between a result that is out of date.

   Mutants
   NO_SEAL_AFTER: Invalidate seals before its script only
     run: NO_SEAL_AFTER fails "olderThanTold" (full)
   CHANGED_KEEPS_OPEN: a "changed" message does not seal
     run: ELSEWHERE,CHANGED_KEEPS_OPEN fails "olderThanTold"
   GONE_KEEPS_OPEN: a load that is told "gone" does not seal its flight
     run: ELSEWHERE,GONE_KEEPS_OPEN fails "olderThanTold"
   ALONE_FILLS: what was loaded without a lease is stored
     run: ELSEWHERE,ALONE_FILLS fails "olderThanTold"
   OTHER_LANDS: the flight of a load that is told "other" ends with that
     run: ONE,OTHER_LANDS fails "lostToCaller"
   JOIN_CANCELLED: the last one to leave does not seal
     run: JOIN_CANCELLED fails "abandonedToCaller"
   FIRST_CANCELS: the one who opened the flight cancels its work when leaving
     run: FIRST_CANCELS fails "abandonedToCaller" (full)
   NO_LIMIT: flights begin again as often as it takes
     run: ONE,NO_LIMIT fails "restartedTooOften"
   NO_TIMER: who waits for another load relies on messages alone
     run: ONE,NO_TIMER fails "invalid end state"
*/

#ifdef ONE
#define CALLERS 1
#define RESTARTS 2            /* how often a flight may begin again */
#else
#define CALLERS 2
#define RESTARTS 0
#define ACTIONS 2             /* of the other process */
#endif
#define EMPTY 0
#define NONE 0
#define ERROR 253             /* results that are no version: the load failed, */
#define LOST 254              /* its lease was lost, */
#define ABANDONED 255         /* all callers have left */
#define FILLED 100            /* a message; a "changed" one is the version that it tells of */
#define RIVAL 50              /* the token of the other process's load, plus the version that it read */

byte origin = 1;              /* the version of the data at the origin */
byte value = EMPTY;           /* the version the store holds */
byte lease = NONE;            /* the token of the load that holds the lease */
byte done = 0;

byte flights = 0;             /* the flights of the process are numbered from 1 */
byte open = NONE;             /* the one that newcomers join */
byte members[CALLERS + 1];
bool cancelled[CALLERS + 1];
byte result[CALLERS + 1];     /* NONE until the flight has landed */
byte awaited[CALLERS + 1];    /* the token of the load that the flight waits for */
mtype = { looks, restarts };
mtype woken[CALLERS + 1];     /* what a message tells it to do */
chan message = [1] of { byte };                     /* on its way: FILLED, or the version of a "changed" */

byte cleared = 0;             /* for the checks: the newest version that an invalidate script has told of; */
byte told = 0;                /* and the newest one that the process knows of, */
byte toldOf[CALLERS + 1];     /* or had to know of by the renewal of a flight's load */
hidden byte olderThanTold, lostToCaller, abandonedToCaller, restartedTooOften;

inline seal(f) { if :: open == f -> open = NONE :: else fi }

inline learn(version) { if :: version > 1 -> told = version :: else fi }

inline publish(m) {           /* the message may be lost */
  if :: nfull(message) -> message!m :: true fi
}

inline invalidateScript() { value = EMPTY; lease = NONE; if :: origin > 1 -> cleared = origin :: else fi; publish(origin) }

inline forget(f) { result[f] = ABANDONED; toldOf[f] = 0 }    /* nobody will look at it any more */

inline restart() {
  n++;
  restartedTooOften = (n > RESTARTS + 1); assert(!restartedTooOften)
}

proctype caller() {
  byte f, since; bool last, first;
  atomic {
    since = told;
    if
#ifndef ONE
    :: open != NONE ->
       f = open; members[f]++;
       if :: toldOf[f] > since -> since = toldOf[f] :: else fi
#endif
    :: open == NONE -> flights++; f = flights; open = f; members[f] = 1; first = true
    fi
  }
  if
  :: true -> result[f] != NONE                                         /* stays */
  :: true -> atomic {                                                  /* leaves, unless it has a result by then */
       if :: result[f] != NONE -> goto take :: else fi;
       members[f]--; last = (members[f] == 0);
#ifdef FIRST_CANCELS
       last = last || first;
#endif
#ifndef JOIN_CANCELLED
       if :: members[f] == 0 -> seal(f) :: else fi
#endif
     }
     if :: atomic { last && result[f] == NONE -> cancelled[f] = true } :: !last || result[f] != NONE fi;
     goto out
  fi;
take:
  atomic {
    lostToCaller = (result[f] == LOST); assert(!lostToCaller);
    abandonedToCaller = (result[f] == ABANDONED); assert(!abandonedToCaller);
    olderThanTold = (result[f] < since); assert(!olderThanTold);
    members[f]--; if :: members[f] == 0 -> forget(f) :: else fi
  }
out:
  atomic { f = 0; since = 0; last = false; first = false; done++ }
}

proctype work(byte f) {
  byte token, v, n = 0; bool renews;
  if :: flights >= f :: done == CALLERS && flights < f -> goto out fi;
again:
  atomic {
    if
#ifndef NO_LIMIT
    :: n > RESTARTS -> goto alone
#endif
    :: else
    fi;
    if :: cancelled[f] -> v = ABANDONED; goto land :: else fi;
    if                                                                 /* get, and lease script */
    :: value != EMPTY -> v = value; goto land
    :: value == EMPTY && lease == NONE -> token = f; lease = token; renews = true; v = origin    /* the load begins */
    :: value == EMPTY && lease != NONE -> awaited[f] = lease; goto follow
    fi
  }

  do
  :: true -> atomic {                                                  /* and returns: fill script */
       if :: lease == token -> value = v; lease = NONE; publish(FILLED) :: else fi;
       goto land
     }
#ifndef ELSEWHERE
  :: true -> atomic { if :: lease == token -> lease = NONE :: else fi; v = ERROR; goto land }
#endif
  :: atomic { cancelled[f] -> if :: lease == token -> lease = NONE :: else fi; v = ABANDONED; goto land }
  :: atomic {                                                          /* renew script: gone */
       renews && lease == NONE ->
       renews = false; toldOf[f] = cleared
#ifndef GONE_KEEPS_OPEN
       ; seal(f)
#endif
     }
  :: atomic {                                                          /* renew script: other */
       renews && lease != NONE && lease != token ->
       seal(f); renews = false; token = NONE; v = EMPTY;
#ifdef OTHER_LANDS
       v = LOST; goto land
#else
       restart(); goto again
#endif
     }
  od;

follow:
  atomic {
    if
    :: woken[f] == restarts -> restart()
    :: woken[f] == looks
#ifndef NO_TIMER
    :: woken[f] == 0 && lease != awaited[f]                            /* the timer: that lease is over */
#endif
    :: woken[f] == 0 && cancelled[f] -> awaited[f] = NONE; v = ABANDONED; goto land
    fi;
    awaited[f] = NONE; woken[f] = 0;
    goto again
  }

alone:
  v = origin;                                                          /* a load without a lease */
#ifdef ALONE_FILLS
  value = v;
#endif

land:
  atomic { seal(f); result[f] = v; cancelled[f] = false; if :: members[f] == 0 -> forget(f) :: else fi }
out:
  atomic { token = NONE; v = EMPTY; n = 0; renews = false }
}

proctype receiver() {
  byte m, f;
end:
  do
  :: atomic {
       message?m ->
       if
       :: m != FILLED ->
#ifndef CHANGED_KEEPS_OPEN
          open = NONE;
#endif
          learn(m)
       :: m == FILLED
       fi;
       f = 1;
       do
       :: f <= CALLERS ->
          if
          :: awaited[f] != NONE && woken[f] == 0 -> if :: m == FILLED -> woken[f] = looks :: else -> woken[f] = restarts fi
          :: else
          fi;
          f++
       :: else -> break
       od;
       m = 0; f = 0
     }
  od
}

#ifndef ELSEWHERE
proctype writer() {           /* in this process */
  byte wrote;
  origin++;
  open = NONE;
  atomic { invalidateScript(); wrote = origin }
  atomic {
#ifndef NO_SEAL_AFTER
    open = NONE;
#endif
    learn(wrote); wrote = 0
  }
}
#endif

#if defined(ONE) || defined(ELSEWHERE)
proctype rival() {            /* in the other process */
#ifdef ELSEWHERE
  byte n = 0;
#endif
  do
#ifdef ELSEWHERE
  :: n == ACTIONS -> break
  :: origin == 1 -> origin++
  :: n < ACTIONS -> n++;
#else
  :: break
  :: true ->
#endif
     if
     :: atomic { invalidateScript() }
     :: atomic { value == EMPTY && lease == NONE -> lease = RIVAL + origin }
     :: atomic { lease >= RIVAL -> value = lease - RIVAL; lease = NONE; publish(FILLED) }
     fi
  od
}
#endif

proctype expiry() {
end:
  do
  :: atomic { lease != NONE -> lease = NONE }
  :: done == CALLERS -> break
  od
}

init {
  atomic {
    byte i = 1;
#ifndef ELSEWHERE
    if :: value = EMPTY :: value = origin fi;
    run writer();
#endif
#if defined(ONE) || defined(ELSEWHERE)
    run rival();
#endif
    run expiry(); run receiver();
    do :: i <= CALLERS -> run caller(); run work(i); i++ :: else -> break od
  }
}
