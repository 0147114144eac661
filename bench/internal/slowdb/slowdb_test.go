package slowdb

import (
	"context"
	"errors"
	"testing"
	"time"
)

func open(t *testing.T, replicas int) (*Server, []*Client) {
	t.Helper()
	s, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	var clients []*Client
	for i := range replicas {
		c, err := Dial(t.Context(), s.Addr(), i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return s, clients
}

type answer struct {
	version int64
	err     error
}

func (c *Client) ask(ctx context.Context, key string) <-chan answer {
	told := make(chan answer, 1)
	go func() {
		v, err := c.Load(ctx, key)
		told <- answer{v, err}
	}()
	return told
}

// A load returns the version at its beginning, and the server records all loads.
func TestLoads(t *testing.T) {
	s, c := open(t, 2)
	s.Put("slow", Plan{Takes: 300 * time.Millisecond})
	first := c[0].ask(t.Context(), "slow")
	<-s.Begun("slow")
	if v := s.Change("slow"); v != 2 {
		t.Errorf("version %d after a change", v)
	}
	second := c[1].ask(t.Context(), "slow")
	if a := <-first; a != (answer{1, nil}) {
		t.Errorf("the first load: %+v", a)
	}
	if a := <-second; a != (answer{2, nil}) {
		t.Errorf("the second load: %+v", a)
	}
	loads := s.Loads("slow")
	if len(loads) != 2 || loads[0].Replica != 0 || loads[1].Replica != 1 || loads[0].GivenUp ||
		loads[1].End.Sub(loads[1].Begin) < 300*time.Millisecond {
		t.Errorf("%+v", loads)
	}
}

func TestWhatLoadsBring(t *testing.T) {
	s, c := open(t, 1)
	s.Put("missing", Plan{Missing: true})
	s.Put("failing", Plan{Fails: true})
	if v, err := c[0].Load(t.Context(), "missing"); v != 0 || err != nil {
		t.Errorf("what is missing: %d, %v", v, err)
	}
	for _, key := range []string{"failing", "unknown"} {
		if _, err := c[0].Load(t.Context(), key); !errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// If a caller no longer waits, or its replica has ended, its load is given up. Other loads go on.
func TestGivenUp(t *testing.T) {
	s, c := open(t, 3)
	s.Put("long", Plan{Takes: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	leaves, dies, stays := c[0].ask(ctx, "long"), c[1].ask(t.Context(), "long"),
		c[2].ask(t.Context(), "long")
	for len(s.Loads("long")) < 3 { // a test that waits in vain is ended by go test
	}
	cancel()
	if a := <-leaves; !errors.Is(a.err, context.Canceled) {
		t.Errorf("who left: %+v", a)
	}
	_ = c[1].Close()
	if a := <-dies; a.err == nil {
		t.Error("a connection that has ended brought something")
	}
	for gone := 0; gone < 2; {
		gone = 0
		for _, l := range s.Loads("long") {
			if l.GivenUp {
				gone++
				if l.Replica == 2 || l.End.IsZero() {
					t.Fatalf("%+v", l)
				}
			}
		}
	}
	select {
	case a := <-stays:
		t.Errorf("who stays: %+v", a)
	default:
	}
	if _, err := c[1].Load(t.Context(), "long"); err == nil {
		t.Error("a connection that has ended takes loads")
	}
}

func TestMostAtOnce(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, c := range []struct {
		loads []Load
		want  int
	}{
		{nil, 0},
		{[]Load{{Begin: at(1), End: at(2)}, {Begin: at(2), End: at(3)}}, 1},
		{
			[]Load{
				{Begin: at(1), End: at(4)}, {Begin: at(2), End: at(3)}, {Begin: at(3), End: at(5)},
			}, 2,
		},
		{[]Load{{Begin: at(1)}, {Begin: at(9)}}, 2},
	} {
		if got := MostAtOnce(c.loads); got != c.want {
			t.Errorf("%+v: %d, want %d", c.loads, got, c.want)
		}
	}
}

// With Dated a load returns the time of its end, and no two loads return the same time. A load that
// begins while the origin is down fails. Both record the version that they replace.
func TestDated(t *testing.T) {
	s, c := open(t, 1)
	s.Put("hot", Plan{Dated: true})
	first, err := c[0].Load(t.Context(), "hot")
	if err != nil {
		t.Fatal(err)
	}
	if ended := s.Loads("hot")[0].End.UnixNano(); first != ended {
		t.Errorf("%d; want the end of the load, %d", first, ended)
	}
	s.keys["hot"].version += int64(time.Hour) // as if another load had ended at the same moment
	if v, err := c[0].Renew(t.Context(), "hot", first); v != first+int64(time.Hour)+1 ||
		err != nil {
		t.Errorf("%d, %v; want one more than %d and an hour", v, err, first)
	}
	s.Replan("hot", Plan{Dated: true, Down: time.Now(), Up: time.Now().Add(time.Hour)})
	if v, err := c[0].Load(t.Context(), "hot"); !errors.Is(err, ErrFailed) {
		t.Errorf("while it is down: %d, %v", v, err)
	}
	s.Replan("hot", Plan{Dated: true, Down: time.Now().Add(-time.Hour), Up: time.Now()})
	if v, err := c[0].Load(t.Context(), "hot"); v <= first || err != nil {
		t.Errorf("when it is up again: %d, %v", v, err)
	}
	if loads := s.Loads("hot"); len(loads) != 4 || loads[1].Replaces != first || !loads[2].Failed ||
		loads[3].Failed {
		t.Errorf("%+v", loads)
	}
}
