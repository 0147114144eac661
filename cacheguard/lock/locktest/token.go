package locktest

var tokenCases = []spec{
	{"token: larger for each holder", tokens, tokenGrows},
	{"token: larger after a theft", tokens, tokenAfterSteal},
	{"token: none", tokens, tokenNone},
}

// larger checks that each token is larger than the one before.
type larger struct {
	e    *env
	last int64
}

func (o *larger) next(token int64) {
	o.e.Helper()
	if o.e.fleet.Fenced && token <= o.last {
		o.e.Errorf("after the token %d there was the token %d", o.last, token)
	}
	o.last = token
}

func tokenGrows(e *env) {
	e.needsTokens()
	for range 2 {
		name, seen := e.name(), larger{e: e}
		for i := range 30 {
			l := e.fleet.Lockers[i%len(e.fleet.Lockers)]
			acquire := e.try
			if i%2 == 0 {
				acquire = e.lock
			}
			held := acquire(l, name)
			seen.next(held.Token())
			if again := held.Token(); again != seen.last {
				e.Errorf("one lock has the tokens %d and %d", seen.last, again)
			}
			e.unlock(held)
		}
		// Nobody has the lock for a while. The system must not forget its token in this time.
		e.pass(e.fleet.Lease * 3 / 2)
		held := e.lock(e.a, name)
		seen.next(held.Token())
		e.unlock(held)
	}
}

func tokenAfterSteal(e *env) {
	e.needsTokens()
	e.needsSteal()
	name, seen := e.name(), larger{e: e}
	for i := range 6 {
		seen.next(e.lock(e.fleet.Lockers[i%len(e.fleet.Lockers)], name).Token())
		e.fleet.Steal(name)
	}
}

func tokenNone(e *env) {
	if e.fleet.Fenced {
		e.Skipf("the fleet has fencing tokens")
	}
	held := e.lock(e.a, e.name())
	if t := held.Token(); t != 0 {
		e.Errorf("the token is %d although the fleet says that there is none", t)
	}
	e.unlock(held)
}

func (e *env) needsTokens() {
	e.Helper()
	if !e.fleet.Fenced {
		e.Skipf("the fleet has no fencing tokens")
	}
}
