package redisstore_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// wired is a fleet of three replicas. The first one is connected to Redis through a proxy.
type wired struct {
	proxy                *redistest.Proxy
	then                 redistest.Then // what happens to a connection that loses a reply
	first, second, third *replica
	messages             *inbox // the messages that the second replica gets
}

// onBothWires runs a test with a connection that falls silent when it loses a reply, and with a
// connection that breaks. Both use one server and run in parallel.
func onBothWires(t *testing.T, test func(t *testing.T, f *wired), change ...func(*site)) {
	t.Helper()
	server := redistest.Start(t)
	for name, then := range map[string]redistest.Then{
		"silence": redistest.Silence, "hangup": redistest.Hangup,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWired(t, server, then, change...))
		})
	}
}

func newWired(
	t *testing.T, server *redistest.Server, then redistest.Then, change ...func(*site),
) *wired {
	t.Helper()
	f := &wired{proxy: redistest.StartProxy(t, server.Addr()), then: then, messages: &inbox{}}
	prefix := newPrefix()
	brief := func(s *site) { s.store.OpTimeout = lossTime }
	f.first = newReplica(t, f.proxy.Addr(), prefix, append([]func(*site){brief}, change...)...)
	f.second = newReplica(t, server.Addr(), prefix, change...)
	f.third = newReplica(t, server.Addr(), prefix, change...)
	t.Cleanup(f.second.store.Listen("test", f.messages.tell))
	for _, r := range []*replica{f.first, f.second, f.third} {
		r.listens(t)
	}
	return f
}

// loseReply makes the first replica lose the reply to one call of a script.
func (f *wired) loseReply(script string) *redistest.Fault {
	return f.proxy.DropReply(redistest.IsEval(script), f.then)
}

// othersAsk starts callers of a key in the other replicas, and returns when they wait for the load
// of the first replica.
func (f *wired) othersAsk(t *testing.T, key string, load cacheguard.LoadFunc[string]) crowds {
	t.Helper()
	all := crowds{f.second.ask(t, 3, key, load), f.third.ask(t, 3, key, load)}
	f.second.waits(t)
	f.third.waits(t)
	for _, c := range all {
		c.arrived.Wait()
	}
	return all
}

// crowds are callers in several replicas.
type crowds []*crowd

func (cs crowds) wait(t *testing.T) (all []answer) {
	t.Helper()
	for _, c := range cs {
		all = append(all, c.wait(t)...)
	}
	return all
}

func (cs crowds) got(t *testing.T, want string) {
	t.Helper()
	for _, c := range cs {
		c.got(t, want)
	}
}

// hits checks that every replica gets the value from the store.
func (f *wired) hits(t *testing.T, key, want string) {
	t.Helper()
	for _, r := range []*replica{f.first, f.second, f.third} {
		r.get(t, key, mustNotLoad(t)).hit(t, want)
	}
}

// inbox keeps the messages about one cache.
type inbox struct {
	mu  sync.Mutex // guards all
	all []cacheguard.Message
}

func (in *inbox) tell(m cacheguard.Message) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.all = append(in.all, m)
}

func (in *inbox) forget() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.all = nil
}

// awaits returns the messages of one kind about one key when there is at least one. The effect of a
// message may be visible before its listener is called.
func (in *inbox) awaits(
	t *testing.T, kind cacheguard.MessageKind, key string,
) []cacheguard.Message {
	t.Helper()
	waittest.Until(t, "a message is told", func() bool { return len(in.of(kind, key)) > 0 })
	return in.of(kind, key)
}

// of returns the messages of one kind about one key.
func (in *inbox) of(kind cacheguard.MessageKind, key string) []cacheguard.Message {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(in.all), func(m cacheguard.Message) bool {
		return m.Kind != kind || m.Key != key
	})
}
