/* update: writing through the cache with Set and Update, while loads run.

   Rule: Set comes after the write to the origin. It stores the value and ends the lease in one
   step. This is safe only with one writer per key: the Sets of two writers can arrive in the wrong
   order, and then the older value stays. Update is safe with any number of writers. It first claims
   the key (deletes the value, and takes over the lease with a token of its own), then it writes the
   origin, then it fills under its claim. If the fill is refused, it invalidates value and lease.

   Modelled: readers that get a value, or are granted the lease, load and fill; two writers with one
   write each, or one writer with two writes (ONE_WRITER). The lease, the claim and the value may
   end at any moment. With CRASH the only writer may die at any point of its Update, and its claim
   ends only after its death. The reason: if a writer writes after the end of its claim, and then
   dies without a message, no cache can know of the write.

   Checked
     olderThanWrite  a call that began after a write returned gets an older value from the store.
                     One more call comes when all processes are done, and must get the origin's
                     version (P3)

   Runs that hold
     run: holds, over 3000000 states (full)
     run: SET,ONE_WRITER holds, over 60000 states
     run: ONE_WRITER,CRASH holds, over 200000 states

   Mutants
   SET: two writers use Set
     run: SET fails "olderThanWrite"
   KEEP_LEASE: Set leaves the lease to a running load
     run: SET,ONE_WRITER,KEEP_LEASE fails "olderThanWrite"
   CLAIM_LATE: Update claims after it wrote the origin
     run: CLAIM_LATE fails "olderThanWrite"
   CLAIM_KEEPS_LEASE: the claim leaves the lease to a running load, the writer dies after its write
     run: ONE_WRITER,CRASH,CLAIM_KEEPS_LEASE fails "olderThanWrite"
   CLAIM_KEEPS_VALUE: the claim leaves the value, and the writer dies after its write
     run: ONE_WRITER,CRASH,CLAIM_KEEPS_VALUE fails "olderThanWrite"
   NO_REPAIR: a refused fill is not followed by an invalidate
     run: NO_REPAIR fails "olderThanWrite"
   REPAIR_KEEPS_LEASE: the invalidate after a refused fill deletes only the value
     run: REPAIR_KEEPS_LEASE fails "olderThanWrite"
*/

#define READERS 2
#define GETS 2
#define EMPTY 255
#define NONE 0
#ifdef ONE_WRITER
#define WRITERS 1
#define WRITES 2
#else
#define WRITERS 2
#define WRITES 1
#endif

byte origin = 0;              /* the version of the data at the origin */
byte value = 0;               /* the version that the store has */
byte lease = NONE;            /* the token of the load or claim that has the lease */
byte tokens = 0;
byte written = 0;             /* the newest version whose write has returned */
byte done = 0;
byte claim = NONE;            /* with CRASH: the token of a living writer's claim */

hidden byte olderThanWrite;

/* The call returns the store's version. since is the newest version whose write had returned when
   the call began. */
inline answer() {
  d_step { olderThanWrite = (value < since); assert(!olderThanWrite) }
}

proctype reader() {
  byte loaded, token, since, n = 0;
  do
  :: n < GETS ->
     since = written;
     atomic {                                                          /* get, and lease script */
       if
       :: value != EMPTY -> answer()
       :: value == EMPTY && lease == NONE -> tokens++; token = tokens; lease = token
       :: else
       fi
     }
     if
     :: token != NONE ->
        loaded = origin;                                               /* load */
        /* fill script */
        atomic { if :: lease == token -> value = loaded; lease = NONE :: else fi }
     :: else
     fi;
     atomic { loaded = 0; token = NONE; since = 0; n++ }
  :: else -> break
  od;
  done++
}

inline writeOrigin() { atomic { origin++; wrote = origin } }

inline setClaim(holder) {
#ifdef CRASH
  claim = holder
#else
  skip
#endif
}

inline mayDie() {
#ifdef CRASH
  if :: true -> setClaim(NONE); goto dead :: true fi
#else
  skip
#endif
}

inline claimScript() {
  atomic {
#ifndef CLAIM_KEEPS_VALUE
    value = EMPTY;
#endif
    tokens++; token = tokens;
#ifdef CLAIM_KEEPS_LEASE
    if :: lease == NONE -> lease = token :: else fi;
#else
    lease = token;
#endif
    setClaim(token)
  }
}

proctype writer() {
  byte wrote, token, n = 0; bool refused;
  do
  :: n < WRITES ->
#ifdef SET
     writeOrigin();
     atomic {                                                          /* set script */
       value = wrote;
#ifndef KEEP_LEASE
       lease = NONE
#endif
     }
#else
#ifdef CLAIM_LATE
     writeOrigin();
     claimScript();
#else
     claimScript();
     mayDie();
     writeOrigin();
     mayDie();
#endif
     atomic {                                                          /* fill script */
       refused = (lease != token);
       if :: !refused -> value = wrote; lease = NONE :: else fi;
       setClaim(NONE)
     }
#ifndef NO_REPAIR
     if
     :: refused -> atomic {                                            /* invalidate script */
          value = EMPTY;
#ifndef REPAIR_KEEPS_LEASE
          lease = NONE
#endif
        }
     :: else
     fi;
#endif
#endif
     atomic { if :: wrote > written -> written = wrote :: else fi; n++; wrote = 0; token = NONE; refused = false }
  :: else -> break
  od;
dead:
  done++
}

proctype expiry() {
end:
  do
  :: atomic { lease != NONE && lease != claim -> lease = NONE }
  :: atomic { value != EMPTY -> value = EMPTY }
  :: done == READERS + WRITERS -> break
  od
}

init {
  byte since, i = 0;
  atomic {
    do :: i < READERS -> run reader(); i++ :: else -> break od; i = 0;
    do :: i < WRITERS -> run writer(); i++ :: else -> break od;
    run expiry()
  }
  atomic { done == READERS + WRITERS -> since = origin; answer() }     /* one more call */
}
