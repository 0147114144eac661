package redistest

import "testing"

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	s, ctx := StartSentinel(t, 2, 3), waiting(t)
	old, err := s.Master(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.Node(old).Kill()
	master, err := s.AwaitFailover(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Node(s.Addrs()[0]).Restart(); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Master(ctx); err != nil || again != master {
		t.Errorf("the master is %s, %v after a sentinel's return; want %s", again, err, master)
	}
}
