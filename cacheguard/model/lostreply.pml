/* lostreply: replies that get lost, and commands that arrive late.

   Rule: every grant has a number of its own, given by the server; the lease holds the load's token and that
   number. A lease command that finds its own token there is told "granted" and the number in place, for the
   first reply may have been lost. A fill carries both. Only a load that began after it received its grant may
   fill: one that never got an answer loads for its callers alone and releases by its token afterwards. The
   stored frame carries the load's token, so a repeated fill that finds its own value reports "stored".

   Modelled: two loads of one key; lease and fill are each sent twice unless the first is answered; each copy
   is applied and answered, or applied and its answer lost, or kept by the network and applied at any later
   moment, or never; so there are delayed duplicates of leases and of fills. A writer changes the origin and
   invalidates. Lease and value run out at any moment.

   Checked
     olderThanInvalidate  after Invalidate returned, and when all is quiet, the store holds an older value
     waitsForItself       a load is told "held" by the lease that it holds itself
     storedButRefused     a fill is reported as refused although its value stands
     refusedUndisturbed   a fill is refused although nothing ended the lease since its grant was received

   Runs that hold
     run: holds, over 1500000 states (full)

   Mutants
   NO_NUMBER: fill compares the token alone: a late lease, then a late fill, store an old value
     run: NO_NUMBER fails "olderThanInvalidate"
   ADOPT: a load whose lease was never answered fills all the same, by its token
     run: ADOPT fails "olderThanInvalidate"
   NO_SELF: the lease script tells a load that its own token is "held" (plain SET NX)
     run: NO_SELF fails "waitsForItself"
   NO_RECOGNISE: a repeated fill is refused because its first copy ended the lease
     run: NO_RECOGNISE fails "storedButRefused"
   NEW_NUMBER: "already mine" gives out a new number: a late lease disowns the load that runs
     run: NEW_NUMBER fails "refusedUndisturbed"
*/

#define LOADS 2
#define WRITES 1
#define COPIES 2
#define EMPTY 255
#define NONE 0
#define ANY 255

mtype = { noReply, hit, held, granted, stored, refused };

byte origin = 0;              /* the version of the data at the origin */
byte value = EMPTY;           /* the version the store holds */
byte filledBy = NONE;         /* the token in its frame */
byte lease = NONE;            /* the token of the load that holds the lease */
byte number = 0;              /* and the number of its grant */
byte grants = 0;
byte invalidated = 0;         /* the newest version whose Invalidate has returned */

byte lateLeases[LOADS];       /* copies that the network keeps */
byte lateFills[LOADS], lateVersion[LOADS], lateNumber[LOADS];

byte undisturbed = 0;         /* for the checks, bit set of loads: their lease stands since the grant was received */
hidden byte olderThanInvalidate, waitsForItself, storedButRefused, refusedUndisturbed;

#define endLease() lease = NONE; number = 0

inline leaseScript(token, reply, num) {
  if
  :: value != EMPTY -> reply = hit
  :: value == EMPTY && lease == NONE -> lease = token; grants++; number = grants; num = number; reply = granted
#ifndef NO_SELF
  :: value == EMPTY && lease == token ->
#ifdef NEW_NUMBER
     grants++; number = grants;
#endif
     num = number; reply = granted
#endif
  :: else -> reply = held
  fi
}

inline fillScript(token, num, version, reply) {
  if
#ifdef NO_NUMBER
  :: lease == token ->
#else
  :: lease == token && (num == number || num == ANY) ->
#endif
     value = version; filledBy = token; endLease(); reply = stored;
     checkStore()
#ifndef NO_RECOGNISE
  :: lease != token && value != EMPTY && filledBy == token -> reply = stored
#endif
  :: else -> reply = refused
  fi
}

inline checkStore() {         /* what a call would get that begins now */
  olderThanInvalidate = (value < invalidated); assert(!olderThanInvalidate)
}

inline checkFillReply(me, reply) {
  storedButRefused = (reply == refused && value != EMPTY && filledBy == me + 1);
  assert(!storedButRefused);
  refusedUndisturbed = (reply == refused && ((undisturbed >> me) & 1));
  assert(!refusedUndisturbed)
}

proctype load(byte me) {      /* its token is me + 1 */
  byte version, num, tries = 0; mtype reply = noReply;
  do
  :: reply == noReply && tries < COPIES ->
     tries++;
     if
     :: true -> atomic {
          leaseScript(me + 1, reply, num);
          waitsForItself = (reply == held && lease == me + 1); assert(!waitsForItself);
          if :: reply == granted -> undisturbed = undisturbed | (1 << me) :: else fi
        }
     :: true -> atomic { leaseScript(me + 1, reply, num); reply = noReply; num = 0 }
     :: true -> lateLeases[me]++
     fi
  :: else -> break
  od;

  if
  :: reply == granted
  :: reply == hit || reply == held -> goto out
  :: reply == noReply ->
#ifdef ADOPT
     num = ANY
#else
     atomic { if :: lease == me + 1 -> endLease() :: else fi }         /* loaded unshared; release by token */
     goto out
#endif
  fi;

  version = origin;                                                    /* load */
  reply = noReply; tries = 0;
  do
  :: reply == noReply && tries < COPIES ->
     tries++;
     if
     :: true -> atomic { fillScript(me + 1, num, version, reply); checkFillReply(me, reply) }
     :: true -> atomic {
          fillScript(me + 1, num, version, reply);
          if :: reply == stored -> undisturbed = undisturbed & ~(1 << me) :: else fi;
          reply = noReply
        }
     :: atomic { lateFills[me]++; lateVersion[me] = version; lateNumber[me] = num }
     fi
  :: else -> break
  od;

out:
  atomic { version = 0; num = 0; tries = 0; reply = noReply; undisturbed = undisturbed & ~(1 << me) }
}

proctype network(byte me) {
  byte num; mtype reply;
end:
  do
  :: atomic { lateLeases[me] > 0 -> lateLeases[me]--; leaseScript(me + 1, reply, num); reply = noReply; num = 0 }
  :: atomic {
       lateFills[me] > 0 -> lateFills[me]--;
       fillScript(me + 1, lateNumber[me], lateVersion[me], reply);
       if :: reply == stored -> undisturbed = undisturbed & ~(1 << me) :: else fi;
       reply = noReply
     }
  od
}

proctype writer() {
  byte n = 0;
  do
  :: n < WRITES ->
     origin++;
     atomic { value = EMPTY; filledBy = NONE; endLease(); undisturbed = 0 }  /* invalidate script */
     atomic { invalidated = origin; if :: value != EMPTY -> checkStore() :: else fi }
     n++
  :: else -> break
  od
}

proctype expiry() {
end:
  do
  :: atomic { lease != NONE -> endLease(); undisturbed = 0 }
  :: atomic { value != EMPTY -> value = EMPTY; filledBy = NONE }
  od
}

init {
  atomic {
    byte l = 0;
    do :: l < LOADS -> run load(l); run network(l); l++ :: else -> break od;
    run writer(); run expiry()
  }
}
