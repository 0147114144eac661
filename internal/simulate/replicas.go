package simulate

// replicas are the processes of the fleet.
type replicas struct {
	up      int
	serving []bool
	flights [][]*flight
	trouble []int8 // how many commands in a row Redis didn't answer
}

func newReplicas(n int) replicas {
	r := replicas{
		up: n, serving: make([]bool, n), flights: make([][]*flight, n), trouble: make([]int8, n),
	}
	for i := range r.serving {
		r.serving[i] = true
	}
	return r
}

// any picks a replica that serves. There is always at least one.
func (r *replicas) any(draw random) int32 {
	for {
		if i := draw.IntN(len(r.serving)); r.serving[i] {
			return int32(i)
		}
	}
}

func (r *replicas) add(f *flight) {
	list := &r.flights[f.replica]
	f.place = len(*list)
	*list = append(*list, f)
}

func (r *replicas) remove(f *flight) {
	list := r.flights[f.replica]
	last := list[len(list)-1]
	list[f.place], last.place = last, f.place
	list[len(list)-1] = nil
	r.flights[f.replica] = list[:len(list)-1]
}

// planDeploys plans restarts of all replicas, one after another, several times in the whole run.
func (s *simulation) planDeploys() {
	if s.Replicas == 1 {
		return // at least one replica must serve
	}
	for n := range s.Deploys {
		begin := s.end / int64(s.Deploys) * int64(n)
		begin += s.end / int64(s.Deploys) / 4
		for r := range s.Replicas {
			at := begin + int64(s.DeployTime)*int64(r)/int64(s.Replicas)
			if at >= s.end {
				break
			}
			s.plan(at, func() {
				if s.replicas.up == 1 || !s.replicas.serving[r] {
					return
				}
				s.replicas.up--
				s.replicas.serving[r] = false
				s.kill(int32(r))
				s.after(int64(s.Down), func() { s.replicas.up++; s.replicas.serving[r] = true })
			})
		}
	}
}

// kill ends a process with all its flights. Its leases and locks expire.
func (s *simulation) kill(replica int32) {
	s.replicas.trouble[replica] = 0
	s.bulk.kills++
	for _, f := range append([]*flight(nil), s.replicas.flights[replica]...) {
		f.alone = false
		s.answer(f, lost)
		s.giveBack(f)
		s.expire(f)
	}
}
