package flight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errLeft = errors.New("everybody has left")

func TestOneLeaderOneResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		var leaders atomic.Int32
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				f, leads := g.Join("key", 0)
				if leads {
					leaders.Add(1)
					time.Sleep(time.Second) // the work; all others have joined meanwhile
					f.Land(42)
					return
				}
				if v, err := f.Wait(t.Context()); v != 42 || err != nil {
					t.Errorf("got %d, %v", v, err)
				}
			})
		}
		wg.Wait()
		if n := leaders.Load(); n != 1 {
			t.Errorf("%d leaders", n)
		}
	})
}

func TestDifferentKeysDontMeet(t *testing.T) {
	var g Group[int]
	for i := range 1000 {
		if _, leads := g.Join(fmt.Sprint(i), 0); !leads {
			t.Fatalf("key %d has a flight already", i)
		}
	}
}

func TestLandedIsOver(t *testing.T) {
	var g Group[int]
	f, _ := g.Join("key", 0)
	f.Land(1)
	f.Land(2)
	if v, err := f.Wait(canceled()); err == nil && v != 1 {
		t.Errorf("the second landing counted: %d", v)
	}
	if _, leads := g.Join("key", 0); !leads {
		t.Error("a newcomer joined a flight that has landed")
	}
}

func TestSealedTakesNobody(t *testing.T) {
	for name, seal := range map[string]func(*Group[int], *Flight[int]){
		"Group.Seal":    func(g *Group[int], _ *Flight[int]) { g.Seal("key") },
		"Group.SealAll": func(g *Group[int], _ *Flight[int]) { g.SealAll() },
		"Flight.Seal":   func(_ *Group[int], f *Flight[int]) { f.Seal() },
	} {
		t.Run(name, func(t *testing.T) {
			var g Group[int]
			lead, _ := g.Join("key", 0)
			member, _ := g.Join("key", 0)
			seal(&g, lead)
			newcomer, leads := g.Join("key", 0)
			if !leads || newcomer == lead {
				t.Fatal("a newcomer joined a sealed flight")
			}
			lead.Land(1)
			if v, err := member.Wait(t.Context()); v != 1 || err != nil {
				t.Errorf("a member from before got %d, %v", v, err)
			}
			if again, leads := g.Join("key", 0); leads || again != newcomer {
				t.Error("landing the sealed flight closed the one after it")
			}
		})
	}
}

// If a caller asks for a flight that was begun after a moment, it doesn't join an older flight but
// leads a new one. It joins a later flight.
func TestJoinSince(t *testing.T) {
	var g Group[int]
	before := Now()
	early, _ := g.Join("key", 0)
	if f, leads := g.JoinSince("key", 0, before); leads && before > 0 || f != early {
		t.Error("the flight was begun after that moment")
	}
	member, _ := g.Join("key", 0)
	moment := Now()
	late, leads := g.JoinSince("key", 0, moment)
	if !leads || late == early {
		t.Fatal("joined a flight from before the moment")
	}
	if again, leads := g.JoinSince("key", 0, moment); leads || again != late {
		t.Error("two with one moment have a flight each")
	}
	if newcomer, leads := g.Join("key", 0); leads || newcomer != late {
		t.Error("a newcomer didn't join the later flight")
	}
	early.Land(1)
	if v, err := member.Wait(t.Context()); v != 1 || err != nil {
		t.Errorf("a member of the early flight got %d, %v", v, err)
	}
	if full, _ := g.JoinSince("key", 1, moment); full != nil {
		t.Error("the limit doesn't count")
	}
}

// The result of a flight has the moment of the flight's beginning, unless the result was found
// later.
func TestSince(t *testing.T) {
	var g Group[int]
	land := map[string]func(f *Flight[int], moment uint64){
		"begun": func(f *Flight[int], _ uint64) { f.Land(1) },
		"found": func(f *Flight[int], moment uint64) { f.LandAsOf(1, moment) },
	}
	for how, do := range land {
		before := Now()
		f, _ := g.Join("key", 0)
		between := Now()
		found := Tick()
		after := Now()
		do(f, found)
		if !f.Since(before) || f.Since(between) != (how == "found") || f.Since(after) {
			t.Errorf("%s: %v, %v, %v", how, f.Since(before), f.Since(between), f.Since(after))
		}
	}

	begun := Tick()
	between := Now()
	Tick()
	f, leads := g.JoinBegun("key", 0, 0, begun)
	if late, leadsToo := g.JoinSince("key", 0, between); !leads || late == f || !leadsToo {
		t.Error("joined a flight with something from before the moment")
	}
}

// Members who need something newer share one more flight, however late they ask.
func TestJoinNext(t *testing.T) {
	var g Group[int]
	f, _ := g.Join("key", 0)
	came := Now()
	for range 3 {
		g.Join("key", 0)
	}
	f.Land(1)
	next, leads := g.JoinNext(f, came)
	if !leads || next == f {
		t.Fatal("the first one doesn't lead")
	}
	if joined, leads := g.JoinNext(f, came); leads || joined != next {
		t.Error("the second one didn't join it")
	}
	next.Land(2)
	for range 2 { // the second one finds what the first one found
		joined, leads := g.JoinNext(f, came)
		if leads || joined != next {
			t.Fatal("what has landed wasn't shared")
		}
		if v, err := joined.Wait(t.Context()); v != 2 || err != nil {
			t.Errorf("got %d, %v", v, err)
		}
	}

	t.Run("nobody waited", func(t *testing.T) {
		f, _ := g.Join("key", 0)
		came := Now()
		f.Land(1)
		next, _ := g.JoinNext(f, came)
		next.Land(2)
		if joined, _ := g.JoinNext(f, came); joined != next {
			t.Error("what has landed wasn't shared")
		} else if v, err := joined.Wait(t.Context()); v != 2 || err != nil {
			t.Errorf("got %d, %v", v, err)
		}
	})
	t.Run("everybody has left it", func(t *testing.T) {
		f, _ := g.Join("key", 0)
		came := Now()
		f.Land(1)
		next, _ := g.JoinNext(f, came)
		next.Leave()
		if again, leads := g.JoinNext(f, came); !leads || again == next {
			t.Error("joined work that is being cancelled")
		}
	})
	t.Run("somebody else has begun one", func(t *testing.T) {
		f, _ := g.Join("key", 0)
		came := Now()
		f.Land(1)
		other, _ := g.Join("key", 0)
		if joined, leads := g.JoinNext(f, came); leads || joined != other {
			t.Error("didn't join it")
		}
		if joined, _ := g.JoinNext(f, Now()); joined == other {
			t.Error("who came after it was begun joined it")
		}
	})
}

// A member that leaves gets its own context's error; the work goes on for the others, and ends with
// the last of them.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		f, _ := g.Join("key", 0)
		starter, stopStarter := context.WithCancel(t.Context())
		work, done := f.Detach(starter, errLeft)
		defer done(nil)

		first, leaveFirst := context.WithCancelCause(t.Context())
		joined, _ := g.Join("key", 0)
		left := make(chan error)
		go func() {
			_, err := joined.Wait(first)
			left <- err
		}()
		synctest.Wait()
		leaveFirst(errors.New("tired"))
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("it got %v", err)
		}
		synctest.Wait()
		if work.Err() != nil {
			t.Fatal("the work was cancelled although one member is left")
		}

		stopStarter()
		synctest.Wait()
		if work.Err() != nil {
			t.Fatal("the work ended with its starter's context, not with its leaving")
		}
		if _, err := f.Wait(starter); !errors.Is(err, context.Canceled) {
			t.Errorf("the starter got %v", err)
		}
		if cause := context.Cause(work); cause != errLeft {
			t.Errorf("the last has left and the work's cause is %v", cause)
		}
		if _, leads := g.Join("key", 0); !leads {
			t.Error("a newcomer joined work that is being cancelled")
		}
	})
}

func TestDetachedKeepsValues(t *testing.T) {
	type key struct{}
	var g Group[int]
	f, _ := g.Join("key", 0)
	work, done := f.Detach(context.WithValue(t.Context(), key{}, "v"), errLeft)
	defer done(nil)
	if work.Value(key{}) != "v" {
		t.Error("the starter's values are gone")
	}
	if _, ok := work.Deadline(); ok {
		t.Error("the starter's deadline came along")
	}
}

func TestResultBeatsTheEnd(t *testing.T) {
	var g Group[int]
	f, _ := g.Join("key", 0)
	joined, _ := g.Join("key", 0)
	f.Land(7)
	if joined.Leave() {
		t.Error("left a flight that had landed")
	}
	if v, err := joined.Wait(context.Background()); v != 7 || err != nil {
		t.Errorf("got %d, %v", v, err)
	}
}

func TestLimit(t *testing.T) {
	var g Group[int]
	f, _ := g.Join("key", 3)
	for range 2 {
		if joined, leads := g.Join("key", 3); joined != f || leads {
			t.Fatal("turned away below the limit")
		}
	}
	if joined, leads := g.Join("key", 3); joined != nil || leads {
		t.Fatal("joined above the limit")
	}
	f.Leave()
	if joined, _ := g.Join("key", 3); joined != f {
		t.Error("turned away although one has left")
	}
}

// TestCrowd has members of many keys join, leave, seal and land at random under the race detector:
// everybody who does not leave gets a result of their own key.
func TestCrowd(t *testing.T) {
	var g Group[string]
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			key := fmt.Sprint(i % 7)
			f, leads := g.Join(key, 0)
			switch {
			case leads:
				work, done := f.Detach(context.Background(), errLeft)
				go func() {
					defer done(nil)
					_ = work.Err()
					f.Land(key)
				}()
			case i%5 == 0:
				g.Seal(key)
			}
			ctx := context.Background()
			if i%3 == 0 {
				ctx = canceled()
			}
			if v, err := f.Wait(ctx); err == nil && v != key {
				t.Errorf("key %s got %q", key, v)
			}
		})
	}
	wg.Wait()
	for i := range g.shard {
		if n := len(g.shard[i].open); n != 0 {
			t.Errorf("%d flights are left", n)
		}
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestOffer: a member that runs out of patience takes the offer and leaves. A patient member gets
// the result.
func TestOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string]
		f, _ := g.Join("k", 0)
		f.Hold()
		type got struct {
			result string
			after  time.Duration
		}
		results := make(chan got, 3)
		began := time.Now()
		wait := func(f *Flight[string], patience time.Duration) {
			r, _, err := f.WaitAtMost(t.Context(), patience, func() {})
			if err != nil {
				t.Error(err)
			}
			results <- got{r, time.Since(began)}
		}
		early, _ := g.Join("k", 0)
		go wait(early, time.Second) // before there is an offer
		time.Sleep(3 * time.Second)
		f.Offer("offered", time.Now().Add(time.Hour))
		if r := <-results; r != (got{"offered", 3 * time.Second}) {
			t.Errorf("got %+v", r)
		}
		impatient, _ := g.Join("k", 0)
		patient, _ := g.Join("k", 0)
		work, cancel := f.Detach(t.Context(), errors.New("everybody has left"))
		defer cancel(nil)
		go wait(impatient, time.Second)
		go wait(patient, time.Hour)
		if r := <-results; r != (got{"offered", 4 * time.Second}) {
			t.Errorf("got %+v", r)
		}
		f.Leave()
		ctx, leave := context.WithCancel(t.Context())
		leaver, _ := g.Join("k", 0)
		leave()
		if _, _, err := leaver.WaitAtMost(ctx, time.Hour, func() {}); !errors.Is(err,
			context.Canceled) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if work.Err() != nil {
			t.Error("work that holds itself was cancelled")
		}
		f.Land("landed")
		if r := <-results; r != (got{"landed", 4 * time.Second}) {
			t.Errorf("got %+v", r)
		}
		if r, taken, err := early.WaitAtMost(t.Context(), time.Nanosecond,
			func() {}); r != "landed" || taken || err != nil {
			t.Errorf("after landing: %q, %v", r, err)
		}
	})
}

// TestHold: held work goes on when all callers have left, and newcomers join it.
func TestHold(t *testing.T) {
	var g Group[string]
	f, _ := g.Join("k", 0)
	f.Hold()
	work, cancel := f.Detach(t.Context(), errors.New("everybody has left"))
	defer cancel(nil)
	f.Leave()
	if work.Err() != nil {
		t.Error("work that holds itself was cancelled")
	}
	if again, leads := g.Join("k", 0); leads || again != f {
		t.Error("a newcomer did not join")
	}
}

// Work that is detached late learns at once that a member couldn't wait for its turn, and that its
// last member has left.
func TestDetachLate(t *testing.T) {
	var g Group[string]
	f, _ := g.Join("k", 0)
	f.Urge()
	f.Leave()
	var abandoned, urged int
	f.DetachTo(func() { abandoned++ }, func() { urged++ })
	if abandoned != 1 || urged != 1 {
		t.Errorf("told %d times that all have left, and %d times that a member can't wait; want once each",
			abandoned, urged)
	}
}

// Work that held itself and has let go counts neither as a caller nor in place of one.
func TestHeldWorkIsNoCaller(t *testing.T) {
	var g Group[string]
	f, _ := g.Join("k", 1)
	f.Hold()
	if n := f.Callers(); n != 1 {
		t.Errorf("%d callers beside the work; want 1", n)
	}
	if f.LetGo(); f.Callers() != 1 {
		t.Errorf("%d callers after the work has let go; want 1", f.Callers())
	}
	if more, _ := g.Join("k", 1); more != nil {
		t.Error("the only place was given twice")
	}
}

// Members hear each word that the work announces while they wait, and who comes later the last one.
func TestAnnounce(t *testing.T) {
	var g Group[int]
	f, _ := g.Join("k", 0)
	member, _ := g.Join("k", 0)
	nothing, first := member.Word()
	select {
	case <-first:
		t.Error("heard before it was said")
	default:
	}
	if nothing != nil {
		t.Errorf("heard %v before anything was said", nothing)
	}
	f.Announce("first")
	<-first
	word, second := member.Word()
	if word != "first" {
		t.Errorf("heard %v first", word)
	}
	f.Announce("second")
	<-second
	late, _ := g.Join("k", 0)
	for _, who := range []*Flight[int]{member, late} {
		if word, _ := who.Word(); word != "second" {
			t.Errorf("heard %v", word)
		}
	}
}
