/* strong: reads that get nothing from before a change that has returned, in whatever process.

   Rule: flights and questions to the store are numbered by one clock. A caller notes what the clock shows, then
   joins the key's open flight or opens one. What a flight lands with is as of a moment: that of its beginning if
   its look-up found it, else the last one before its question for the lease was sent, whatever became of that: a
   value, a load of its own, or the message of the load that it waited for. A caller who joined, and came at that
   moment or after it, waits all the same, and then goes on with another flight that is younger than its coming:
   the one that others like it went on with, also when that has landed, or the open one, or one that it opens.

   Modelled: a flight that somebody has begun, and two more callers in its process, each with one call; another process that loads
   once, and changes the origin once, with an Invalidate, that empties the value and ends the lease, or with one
   by tag, which makes what is loaded under older grants count for nothing; loads that read the origin at any moment, and
   fill, or are refused; a lease that runs out at any moment, once; messages that arrive in order and at any moment, or
   never, and carry values. What a message carries counts if its grant is from after all that this process has
   heard of.

   Checked
     older              a caller gets a value from before a change that had returned when its call began
     invalid end state  a caller gets no result

   Runs that hold
     run: holds, over 10000000 states (full)

   SHORT: no lease runs out.

   Mutants
   NO_AGAIN: a caller takes what its first flight brings
     run: SHORT,NO_AGAIN fails "older"
   AS_OF_LANDING: a look-up counts as of when it is answered
     run: SHORT,AS_OF_LANDING fails "older"
   TICK_LATE: the moment is from after the question for the lease
     run: SHORT,TICK_LATE fails "older"
   AS_OF_FILL: a load of one's own counts as of the fill that was stored
     run: SHORT,AS_OF_FILL fails "older"
   UNHEARD: what a message carries counts whatever this process has heard of
     run: SHORT,UNHEARD fails "older"
   NO_TIMER: who waits for another load relies on messages alone
     run: SHORT,NO_TIMER fails "invalid end state"
*/

#define CALLERS 2
#define FLIGHTS 3
#define EMPTY 0
#define NONE 0
#define RIVAL 50              /* the token of the other process's load */

byte origin = 1;              /* the version of the data at the origin */
byte value = EMPTY;           /* the version the store holds, */
byte stamp = 0;               /* and how many changes by tag there had been when its load got the lease */
byte bumps = 0;               /* how many there have been */
byte lease = NONE;            /* the token of the load that holds the lease */
byte returned = 0;            /* the newest version whose change has returned */
byte done = 0;

byte came = 0;                /* who has come, a bit for each: a moment of the clock is who came before it */
byte flights = 0;             /* those of the process are numbered from 1 */
byte open = NONE;             /* the one that newcomers join */
byte born[FLIGHTS + 1];
byte asOf[FLIGHTS + 1];
byte result[FLIGHTS + 1];     /* NONE until the flight has landed */
byte next[FLIGHTS + 1];       /* the flight that its members went on with */
byte awaited[FLIGHTS + 1];    /* the token of the load that the flight waits for */
byte carried[FLIGHTS + 1];    /* the version that a message of it brought */
byte heard = 0;               /* changes by tag that the process knows of */

mtype = { changed, bumped, filled };
chan message = [2] of { mtype, byte, byte, byte };  /* of a load: its token, version and stamp */
bool broken;
hidden byte older;

#define usable (value != EMPTY && stamp == bumps)

inline begin(f) { flights++; f = flights; open = flights; born[flights] = came }

inline publish(kind, token, version, at) {           /* a connection that breaks loses all that follows */
  if :: nfull(message) && !broken -> message!kind, token, version, at :: full(message) || broken -> broken = true fi
}

proctype caller(byte me) {
  byte f, since; bool leads;
  atomic { since = returned; came = came | me }
  atomic {
    if
    :: open != NONE -> f = open
    :: open == NONE -> begin(f); leads = true
    fi
  }
  atomic {
    result[f] != NONE;
#ifndef NO_AGAIN
    if
    :: !leads && (asOf[f] & me) == 0 ->
       if
       :: next[f] != NONE -> f = next[f]
       :: next[f] == NONE && open != NONE && (born[open] & me) != 0 -> f = open
       :: next[f] == NONE && (open == NONE || (born[open] & me) == 0) -> begin(next[f]); f = open
       fi
    :: leads || (asOf[f] & me) != 0
    fi
#endif
  }
  atomic { result[f] != NONE; older = (result[f] < since); assert(!older); f = 0; since = 0; leads = false; me = 0; done++ }
}

proctype work(byte f) {
  byte v, a, at;
  if :: flights >= f :: done == CALLERS && flights < f -> goto out fi;
  atomic {                                                             /* get */
    if :: usable -> v = value; a = born[f] :: !usable -> goto ask fi
  }
#ifdef AS_OF_LANDING
  a = came;
#endif
  goto land;

ask:
#ifndef TICK_LATE
  a = came;
#endif
  atomic {                                                             /* lease script */
    if
    :: usable -> v = value
    :: !usable && lease == NONE -> lease = f; at = bumps               /* the load begins */
    :: !usable && lease != NONE -> awaited[f] = lease
    fi
  }
#ifdef TICK_LATE
  a = came;
#endif
  if
  :: v != 0 -> goto land
  :: v == 0 && awaited[f] != NONE -> goto follow
  :: v == 0 && awaited[f] == NONE
  fi;
  v = origin;
#ifdef AS_OF_FILL
  atomic { if :: lease == f -> a = came :: else fi };
#endif
  atomic {                                                             /* fill script */
    if
    :: lease == f -> value = v; stamp = at; lease = NONE; publish(filled, f, v, at)
    :: lease != f
    fi;
    goto land
  }

follow:
  atomic {
    if
    :: carried[f] != NONE -> v = carried[f]; awaited[f] = NONE; carried[f] = NONE; goto land
#ifndef NO_TIMER
    :: carried[f] == NONE && lease != awaited[f] -> awaited[f] = NONE; goto ask
#endif
    fi
  }

land:
  atomic { if :: open == f -> open = NONE :: open != f fi; asOf[f] = a; result[f] = v }
out:
  atomic { v = 0; a = 0; at = 0 }
}

proctype receiver() {
  mtype kind; byte token, version, at, f;
end:
  do
  :: atomic {
       message?kind, token, version, at ->
       if
       :: kind == changed -> open = NONE
       :: kind == bumped -> open = NONE; heard++
       :: kind == filled ->
          f = 1;
          do
          :: f <= FLIGHTS ->
             if
#ifdef UNHEARD
             :: awaited[f] == token -> carried[f] = version
#else
             :: awaited[f] == token && at == heard -> carried[f] = version
#endif
             :: else
             fi;
             f++
          :: f > FLIGHTS -> break
          od
       fi;
       kind = 0; token = 0; version = 0; at = 0; f = 0
     }
  od
}

proctype writer() {           /* in the other process */
  origin++;
  atomic {
    if
    :: value = EMPTY; stamp = 0; lease = NONE; publish(changed, 0, 0, 0)
    :: bumps++; publish(bumped, 0, 0, 0)
    fi
  }
  returned = origin
}

proctype rival() {            /* in the other process */
  byte v, at;
  if
  :: atomic { !usable && lease == NONE -> lease = RIVAL; at = bumps }
  :: goto out
  fi;
  v = origin;
  atomic {
    if
    :: lease == RIVAL -> value = v; stamp = at; lease = NONE; publish(filled, RIVAL, v, at)
    :: lease != RIVAL
    fi
  }
out:
  atomic { v = 0; at = 0 }
}

#ifndef SHORT
proctype expiry() {
  if
  :: atomic { lease != NONE -> lease = NONE }
  :: done == CALLERS
  fi
}
#endif

init {
  atomic {
    byte i = 1;
    if :: value = EMPTY :: value = origin fi;
    begin(open);
#ifndef SHORT
    run expiry();
#endif
    run writer(); run rival(); run receiver();
    do :: i <= FLIGHTS -> run work(i); i++ :: i > FLIGHTS -> break od;
    i = 1;
    do :: i <= CALLERS -> run caller(i); i++ :: i > CALLERS -> break od
  }
}
