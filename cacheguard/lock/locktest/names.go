package locktest

import (
	"errors"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var nameCases = []spec{
	{"names: any bytes", names, namesAny},
	{"names: too short and too long", names, namesWrong},
	{"names: none waits for another", apart, namesApart},
	{"names: waiters leave others alone", apart, namesManyWaiters},
}

// oddNames are families of names. A system may confuse the names of a family with each other, or
// may not accept them at all.
var oddNames = [][]string{
	{"", "a", "A", "á", "a\u0301", "ａ", "à", "ß", "ss", "İ", "i"},
	{
		"", "a", "a ", " a", "a  ", "a\t", "a\n", "a\r\n", "a\x00", "\x00a", "\x00", "a\x00b",
		"a b", "a+b", "+", "a\u00a0",
	},
	{
		"", "a", "b", "a/b", "a%2Fb", "a%2fb", `a\b`, "a//b", "/", "//", "/a", "a/", ".", "..",
		"...", "./a", "a/.", "a/..", "../a", "%", "%00", "%2F", "a%", "%s",
	},
	{
		"a", "b", "ab", "{", "}", "{}", "}{", "{a}", "{a}b", "a{b}", "{}a", "}a", "{a}:lock",
		"{a}:queue",
	},
	{
		"a", "a:lock", "a:queue", "a:token", "a:fence", "a:owner", "a:wait", ":", "::", "a:", ":a",
		"a.lock", "lock-a", "a-0000000001", "a0000000001",
	},
	{
		"", "a", "*", "?", "[a]", "a*", "_", "a_", "'", `"`, "'; --", `\`, `\x00`, "`", "$1", "#",
		"null", "0", "00", "1", "1e3", "1000", "true",
	},
	{
		"\xff", "\xfe", "\xfe\xff", "\x80", "\xc3\x28", "\xed\xa0\x80", "\ufffd", "\u2028", "🔒",
		"\x01", "\x7f", "\x1b[2J",
	},
}

// longNames returns long names that differ only at their end, so that a system that cuts names
// confuses them.
func longNames(unique string) (long []string) {
	for _, length := range []int{63, 64, 100, 128, 200, 255, 256, lock.MaxName - 1, lock.MaxName} {
		for _, end := range []string{"l", "m", "\xff", "/"} {
			long = append(long, unique+strings.Repeat("l", length-len(unique)-len(end))+end)
		}
	}
	return long
}

// namesAny uses many locks, so it has more bad luck than other cases. Therefore each family of
// names is a part of its own, and after bad luck only this part is repeated.
func namesAny(e *env) {
	for _, family := range oddNames {
		e.luckily(func() {
			unique := e.name()
			var all []string
			for _, odd := range family {
				all = append(all, odd+unique)
			}
			e.heldTogether(all)
		})
		e.luckily(func() {
			unique := e.name()
			var all []string
			for _, odd := range family {
				all = append(all, unique+odd)
			}
			e.heldTogether(all)
		})
	}
	e.luckily(func() { e.heldTogether(longNames(e.name())) })
}

// heldTogether holds all locks at the same time. Each must be free before, held in between, and
// free after.
func (e *env) heldTogether(all []string) {
	e.Helper()
	var locks []lock.Lock
	for i, name := range all {
		step := e.a.TryLock
		if i%4 == 0 {
			step = e.a.Lock // must accept the same names
		}
		w := e.asked(e.ctx, step, name)
		if w.err != nil && (errors.Is(w.err, lock.ErrHeld) || w.neverGot()) {
			e.Fatalf("%q can't be had, although nobody has it: it is taken for another name", name)
		}
		held := w.lock()
		locks = append(locks, held)
		if held.Name() != name {
			e.Errorf("the lock of %q says that its name is %q", name, held.Name())
		}
	}
	lost := 0
	for _, held := range locks {
		if errors.Is(held.Err(), lock.ErrLost) {
			lost++
			continue
		}
		e.refused(e.b, held)
	}
	for _, held := range locks {
		known := errors.Is(held.Err(), lock.ErrLost)
		again := e.try
		if err, _ := e.unlocked(e.ctx, held); known {
			again = e.lock // it may end in the system only after its holder knows of the loss
		} else if err != nil {
			e.unlucky("Unlock of %q, which is held: %v", held.Name(), err)
		}
		e.unlock(again(e.c, held.Name()))
	}
	if lost > len(locks)/2 {
		e.unlucky("%d of %d locks were lost", lost, len(locks))
	}
}

func namesWrong(e *env) {
	for what, name := range map[string]string{
		"an empty name": "", "a name of 513 bytes": strings.Repeat("n", lock.MaxName+1),
	} {
		for _, step := range []acquire{e.a.Lock, e.a.TryLock} {
			held, err := e.ask(e.ctx, step, name)
			if err == nil {
				e.keep(held)
				e.Errorf("%s is accepted", what)
			}
		}
	}
}

func namesApart(e *env) {
	base := e.name()
	held := e.lock(e.a, base)
	w := e.wait(e.b, base)
	for _, l := range e.fleet.Lockers {
		e.unlock(e.lock(l, base+"2"))
		e.unlock(e.try(l, base[:len(base)-1]))
	}
	w.waits(held)
	e.unlock(held)
	e.unlock(w.got())
}

// namesManyWaiters: waiting calls don't use up anything that other calls need, such as all
// connections of their locker.
func namesManyWaiters(e *env) {
	const waiters = 30
	held := e.lock(e.a, e.name())
	var waiting []*waiter
	for range waiters {
		waiting = append(waiting, e.wait(e.b, held.Name()))
	}
	e.pass(e.fleet.Lease / 5)
	for range 3 {
		mine := e.lock(e.b, e.name())
		e.refused(e.a, mine)
		e.unlock(mine)
	}
	long := e.lock(e.b, e.name())
	e.pass(e.fleet.Lease * 3 / 2)
	e.refused(e.c, long) // the waiting calls don't prevent its renewal either
	e.unlock(long)
	for _, w := range waiting {
		w.waits(held)
		w.cancel()
	}
	for _, w := range waiting {
		e.happens("those who wait leave", w.over)
	}
	e.unlock(held)
	e.unlock(e.lock(e.c, held.Name()))
}
