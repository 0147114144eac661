package simulate

import (
	"testing"
	"time"
)

// TestRestartingReplicasServeNobody: in a deploy each is down once, and meanwhile nothing is asked
// of it.
func TestRestartingReplicasServeNobody(t *testing.T) {
	c := calm()
	c.Deploys, c.DeployTime, c.Down, c.Replicas = 1, 100*time.Second, 20*time.Second, 10
	s := newSimulation(c, policy(t, "lease"))
	most, down := 0, map[int]bool{}
	for at := int64(1); at < s.end; at += int64(time.Second) {
		s.plan(at, func() {
			now := 0
			for r, serves := range s.replicas.serving {
				if !serves {
					now++
					down[r] = true
				}
			}
			if s.replicas.up != 10-now {
				t.Fatalf("%d are up, %d are down", s.replicas.up, now)
			}
			most = max(most, now)
			if r := s.replicas.any(s.random); !s.replicas.serving[r] {
				t.Fatalf("%d is picked, which is down", r)
			}
		})
	}
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most != 2 || len(down) != 10 || s.replicas.up != 10 {
		t.Errorf("%d of 10 were down, %d at a time, %d are up afterwards; want 10, 2 and 10",
			len(down), most, s.replicas.up)
	}
}
