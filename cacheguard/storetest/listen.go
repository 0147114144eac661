package storetest

import (
	"fmt"
	"sync"

	"github.com/cacheguard/cacheguard/cacheguard"
)

var listenCases = []spec{
	{"listeners of other caches", apart, listenOther},
	{"listeners of one cache", localTruth, listenTwice},
	{"listener that stopped", bounded, listenStop},
	{"listener is called one call at a time", localTruth, listenOneAtATime},
	{"listener is told of lost messages", oneResult, listenRestored},
	{"listener is told that messages arrive", localTruth, listenBegins},
}

// listenOther uses caches with similar names.
func listenOther(e *env) {
	k := e.key("k")
	names := []string{
		e.cache + "x", e.cache[:len(e.cache)-1], e.cache + ":k", e.cache + ":", e.cache + "\x00",
		"*",
	}
	var ins []*inbox
	for _, cache := range names {
		ins = append(ins, e.listen(e.b, cache))
	}
	own := e.listen(e.b, e.cache)
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	e.stored(e.a, k, g, e.frame(g.Token, "v"))
	e.set(e.a, k, e.frame(e.token(), "v"))
	e.claim(e.a, k, g.Token)
	own.until(e.a, k)

	for i, in := range ins {
		k := cacheguard.Key{Cache: names[i], Key: "k " + e.cache}
		in.until(e.a, k)
		for _, m := range in.messages() {
			if m.Kind != cacheguard.MessageRestored && m.Key != k.Key {
				e.Errorf("a listener to cache %q was told %s %s of cache %q", names[i],
					messageKind(m.Kind), m.Key, e.cache)
			}
		}
	}
}

func listenTwice(e *env) {
	k := e.key("k")
	ins := []*inbox{e.listen(e.b, e.cache), e.listen(e.b, e.cache), e.listen(e.a, e.cache)}
	g := e.leader(e.a, k)
	e.waiter(e.b, k, g)
	e.stored(e.a, k, g, e.frame(g.Token, "v"))
	e.invalidate(e.a, k)
	for _, in := range ins[:2] {
		in.await(k, cacheguard.MessageFilled)
	}
	for _, in := range ins {
		in.await(k, cacheguard.MessageChanged)
	}
}

// listenStop stops one listener of a cache. The other listeners must not be affected.
func listenStop(e *env) {
	k := e.key("k")
	stays := e.listen(e.b, e.cache)
	leaves := &inbox{e: e}
	stop := e.b.Listen(e.cache, leaves.tell)
	e.listening(e.b)
	stays.until(e.a, k)
	leaves.await(k, cacheguard.MessageChanged)
	stop()
	stays.until(e.a, k)
	before := len(leaves.messages())
	stays.until(e.a, k)
	if after := len(leaves.messages()); after != before {
		e.Errorf("a listener that had stopped was told %d messages", after-before)
	}
	again := e.listen(e.b, e.cache)
	again.until(e.a, k)
}

func listenOneAtATime(e *env) {
	const steps = 30
	in := e.listen(e.b, e.cache)
	var all sync.WaitGroup
	failed := make(chan error, 4*steps)
	for i := range 4 {
		k, s := e.key(fmt.Sprint(i)), e.fleet.Stores[i%2]
		all.Go(func() {
			for range steps {
				if err := s.Invalidate(e.ctx, []cacheguard.Key{k}); err != nil {
					failed <- err
				}
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		e.Fatalf("Invalidate: %v", err)
	}
	for i := range 4 {
		k := e.key(fmt.Sprint(i))
		e.eventually("each change is told", func() bool { return in.changes(k) >= steps })
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.both {
		e.Errorf("a listener was called while it was being called")
	}
}

func listenRestored(e *env) {
	if e.fleet.LoseMessages == nil {
		e.Skipf("the fleet can't lose messages")
	}
	k := e.key("k")
	in := e.listen(e.b, e.cache)
	in.until(e.a, k)
	restored := func() (n int) {
		for _, m := range in.messages() {
			if m.Kind == cacheguard.MessageRestored {
				n++
			}
		}
		return n
	}
	before := restored()
	e.fleet.LoseMessages()
	e.eventually("the listener is told that messages may have been lost", func() bool {
		return restored() > before
	})
	e.listening(e.b)
	in.until(e.a, k)
}

// listenBegins has one listener from before messages arrived and one that came later. A process may
// use its data only once it is certain to get messages about changes.
func listenBegins(e *env) {
	k := e.key("k")
	for range 2 {
		in := e.listen(e.b, e.cache)
		e.eventually("the listener is told that messages arrive", func() bool {
			for _, m := range in.messages() {
				if m.Kind == cacheguard.MessageRestored {
					return true
				}
			}
			return false
		})
		in.until(e.a, k)
	}
}
