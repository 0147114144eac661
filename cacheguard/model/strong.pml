/* strong: if a change had returned, in any process, before a read began, the read gets no value
   from before the change.

   Rule: Each process has one clock, which numbers its flights, its requests to the store and its
   callers. A caller reads the clock, and then it joins the key's open flight or opens a flight. The
   result of a flight has the age of one moment. If the look-up found the result, this is the moment
   when the flight began. Otherwise it is the moment just before the last request for the lease was
   sent. This holds for each result of that request: a value, a load of the flight's own, or the
   message of the load that the flight waited for. A caller that joined the flight may have come at
   that moment or later. This caller waits for the flight nevertheless. Then it goes on with another
   flight that began after the caller came: the flight with which other callers of its flight went
   on, even if that flight has landed; or the open flight; or a flight that the caller opens.

   Modelled: a flight that has begun, and two more callers in its process, each with one call;
   another process that loads once and changes the origin once; loads that read the origin at any
   moment, and whose fills are stored or refused; a lease that expires once, at any moment; messages
   that carry values, and that arrive in order, at any moment or never. The change is an Invalidate,
   which removes the value and ends the lease, or an invalidation by tag, which makes everything
   invalid that is loaded under an older grant. The value in a message is valid if its grant is
   later than all invalidations by tag of which this process has been told.

   Checked
     older              a caller gets a value from before a change that had returned when its call
                        began
     invalid end state  a caller gets no result

   Runs that hold
     run: holds, over 10000000 states (full)

   With SHORT no lease expires.

   Mutants
   NO_AGAIN: a caller takes the result of its first flight, whatever the age of the result
     run: SHORT,NO_AGAIN fails "older"
   AS_OF_LANDING: the result of a look-up has the age of the moment when it was answered
     run: SHORT,AS_OF_LANDING fails "older"
   TICK_LATE: the clock is read after the request for the lease instead of before it
     run: SHORT,TICK_LATE fails "older"
   AS_OF_FILL: the result of the flight's own load has the age of its fill
     run: SHORT,AS_OF_FILL fails "older"
   UNHEARD: the value in a message is valid whatever this process has been told
     run: SHORT,UNHEARD fails "older"
   NO_TIMER: a flight that waits for another load relies on messages only
     run: SHORT,NO_TIMER fails "invalid end state"
*/

#define CALLERS 2
#define FLIGHTS 3
#define EMPTY 0
#define NONE 0
#define RIVAL 50              /* the token of the other process's load */

byte origin = 1;              /* the version of the data at the origin */
byte value = EMPTY;           /* the version that the store has */
byte stamp = 0;               /* the number of bumps when the value's load got the lease */
byte bumps = 0;               /* how many invalidations by tag there have been */
byte lease = NONE;            /* the token of the load that has the lease */
byte returned = 0;            /* the newest version whose change has returned */
byte done = 0;

/* The clock has a bit for each caller that has come. A moment is the set of callers that came
   before it. */
byte came = 0;
byte flights = 0;             /* the number of flights, which are numbered from 1 */
byte open = NONE;             /* the flight that new callers join */
byte born[FLIGHTS + 1];       /* the moment when the flight began */
byte asOf[FLIGHTS + 1];       /* the moment whose age the result has */
byte result[FLIGHTS + 1];     /* NONE until the flight has landed */
byte next[FLIGHTS + 1];       /* the flight with which the callers of this flight went on */
byte awaited[FLIGHTS + 1];    /* the token of the load that the flight waits for */
byte carried[FLIGHTS + 1];    /* the version in the message of the awaited load */
byte heard = 0;               /* invalidations by tag of which the process was told */

mtype = { changed, bumped, filled };
chan message = [2] of { mtype, byte, byte, byte };  /* filled: token, version, stamp of the load */
bool broken;
hidden byte older;

#define usable (value != EMPTY && stamp == bumps)

inline begin(f) { flights++; f = flights; open = flights; born[flights] = came }

/* A full channel stands for a connection that breaks. All later messages are lost, too. */
inline publish(kind, token, version, at) {
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
