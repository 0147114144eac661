package memstore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestSlowListenerHoldsUpOneCaller stops a listener in the middle of a message. Others go on, and
// their messages come in order when the listener does.
func TestSlowListenerHoldsUpOneCaller(t *testing.T) {
	s := memstore.New(memstore.Options{})
	called, proceed := make(chan struct{}), make(chan struct{})
	var got []string
	s.Listen("test", func(m cacheguard.Message) {
		if m.Key == "first" {
			close(called)
			<-proceed
		}
		got = append(got, m.Key)
	})
	var first sync.WaitGroup
	first.Go(func() { set(t, s, key("first"), 1, time.Hour) })
	<-called
	want := []string{"", "first"} // it was told first that messages arrive
	for i := range 100 {
		set(t, s, key(i), 1, time.Hour)
		want = append(want, fmt.Sprint(i))
	}
	close(proceed)
	first.Wait()
	if !slices.Equal(got, want) {
		t.Errorf("told %v; want %v", got, want)
	}
}

func TestListenerThatIsTooSlowIsToldSo(t *testing.T) {
	s := memstore.New(memstore.Options{})
	called, proceed := make(chan struct{}), make(chan struct{})
	var got []cacheguard.Message
	s.Listen("test", func(m cacheguard.Message) {
		if len(got) == 1 {
			close(called)
			<-proceed
		}
		got = append(got, m)
	})
	var first sync.WaitGroup
	first.Go(func() { set(t, s, key("first"), 1, time.Hour) })
	<-called
	for range memstore.MaxQueue + 1 {
		set(t, s, key("k"), 1, time.Hour)
	}
	set(t, s, key("last"), 1, time.Hour)
	close(proceed)
	first.Wait()
	if len(got) != 4 || got[0].Kind != cacheguard.MessageRestored ||
		got[2].Kind != cacheguard.MessageRestored || got[3].Key != "last" {
		t.Errorf("told %d messages, %+v...; want that they arrive, the first, that some were lost, and the last",
			len(got), got[:min(4, len(got))])
	}
}

// TestListenerThatCallsTheStore: a listener must not call the store. If it does, it still gets its
// messages, but later.
func TestListenerThatCallsTheStore(t *testing.T) {
	s := memstore.New(memstore.Options{})
	var got []string
	var stop func()
	stop = s.Listen("test", func(m cacheguard.Message) {
		if m.Kind == cacheguard.MessageRestored {
			return
		}
		if m.Key == "first" {
			set(t, s, key("second"), 1, time.Hour)
			s.Listen("test", func(cacheguard.Message) {})()
		}
		got = append(got, m.Key)
		if m.Key == "second" {
			stop()
			set(t, s, key("third"), 1, time.Hour)
		}
	})
	set(t, s, key("first"), 1, time.Hour)
	if !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("told %v", got)
	}
}

func TestListenerThatPanicsIsToldAgain(t *testing.T) {
	s := memstore.New(memstore.Options{})
	var got []string
	s.Listen("test", func(m cacheguard.Message) {
		if m.Kind == cacheguard.MessageRestored {
			return
		}
		got = append(got, m.Key)
		if m.Key == "panic" {
			panic("from the listener")
		}
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is hidden")
			}
		}()
		set(t, s, key("panic"), 1, time.Hour)
	}()
	set(t, s, key("next"), 1, time.Hour)
	if _, leases, _ := s.Items(); leases != 1 { // that of the claim
		t.Error("the step of which the listener was told was not done")
	}
	if !slices.Equal(got, []string{"panic", "next"}) {
		t.Errorf("told %v", got)
	}
}

// TestMessagesOfManyCallers has many callers at once, and listeners that come and go.
func TestMessagesOfManyCallers(t *testing.T) {
	s := memstore.New(memstore.Options{})
	const callers, each = 8, 100
	var mu sync.Mutex
	got := map[string]int{}
	s.Listen("test", func(m cacheguard.Message) {
		mu.Lock()
		defer mu.Unlock()
		got[m.Key]++
	})
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range each {
				set(t, s, key(i), 1, time.Hour)
			}
		})
		all.Go(func() {
			for range each {
				s.Listen("test", func(cacheguard.Message) {})()
			}
		})
	}
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	for i := range callers {
		if n := got[fmt.Sprint(i)]; n != each {
			t.Errorf("told %d of %d changes to key %d", n, each, i)
		}
	}
}

// TestNobodyIsToldWhatNobodyWaitsFor: the store sends only the messages that Redis would send.
func TestNobodyIsToldWhatNobodyWaitsFor(t *testing.T) {
	s := memstore.New(memstore.Options{})
	told := -1 // that messages arrive doesn't count
	s.Listen("test", func(cacheguard.Message) { told++ })
	g := lead(t, s, key("k"), 1, time.Hour)
	if _, err := s.Fill(t.Context(), key("k"), g, []byte("frame"), time.Hour); err != nil {
		t.Fatalf("Fill: %v", err)
	}
	g = lead(t, s, key("failed"), 1, time.Hour)
	if err := s.Conclude(t.Context(), key("failed"), g, cacheguard.Outcome{}, time.Hour,
		0); err != nil {
		t.Fatalf("Conclude: %v", err)
	}
	lead(t, s, key("released"), 1, time.Hour)
	if err := s.Release(t.Context(), key("released"), token(1)); err != nil {
		t.Fatalf("Release: %v", err)
	}
	if told > 0 {
		t.Errorf("told %d messages", told)
	}
}

// TestEachListenerHasItsOwnFrame is for caches that play several processes, and then share no
// memory.
func TestEachListenerHasItsOwnFrame(t *testing.T) {
	s := memstore.New(memstore.Options{})
	var got []string
	for range 2 {
		s.Listen("test", func(m cacheguard.Message) {
			if m.Kind == cacheguard.MessageRestored {
				return
			}
			got = append(got, string(m.Frame))
			clear(m.Frame)
		})
	}
	g := lead(t, s, key("k"), 1, time.Hour)
	if _, err := s.Lease(t.Context(), key("k"),
		cacheguard.LeaseAsk{Token: token(2), Wait: true}); err != nil {
		t.Fatalf("Lease: %v", err)
	}
	if _, err := s.Fill(t.Context(), key("k"), g, []byte("frame"), time.Hour); err != nil {
		t.Fatalf("Fill: %v", err)
	}
	if !slices.Equal(got, []string{"frame", "frame"}) {
		t.Errorf("told %q", got)
	}
}

// TestEachListenerHasItsOwnOutcome is the same for the message about a load that stores nothing.
func TestEachListenerHasItsOwnOutcome(t *testing.T) {
	s := memstore.New(memstore.Options{})
	var got []string
	for range 2 {
		s.Listen("test", func(m cacheguard.Message) {
			if m.Kind == cacheguard.MessageRestored {
				return
			}
			got = append(got, string(m.Outcome.Frame)+string(m.Outcome.Note))
			clear(m.Outcome.Frame)
			clear(m.Outcome.Note)
		})
	}
	g := lead(t, s, key("k"), 1, time.Hour)
	if _, err := s.Lease(t.Context(), key("k"),
		cacheguard.LeaseAsk{Token: token(2), Wait: true}); err != nil {
		t.Fatalf("Lease: %v", err)
	}
	o := cacheguard.Outcome{
		Kind: cacheguard.OutcomeUnstored, Frame: []byte("frame "), Note: []byte("note"),
	}
	if err := s.Conclude(t.Context(), key("k"), g, o, time.Hour, 0); err != nil {
		t.Fatalf("Conclude: %v", err)
	}
	if want := []string{"frame note", "frame note"}; !slices.Equal(got, want) {
		t.Errorf("the listeners were told %q; want %q", got, want)
	}
}
