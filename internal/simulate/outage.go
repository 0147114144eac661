package simulate

// outage is the time during which Redis can't be reached.
type outage struct{ from, to int64 }

func (o outage) has(now int64) bool { return now >= o.from && now < o.to }

// planOutage plans the failover. It begins with a slot and lasts for whole slots.
func (s *simulation) planOutage() {
	slot := slotOf(s.TTL)
	from := int64(s.FailoverAt) / slot * slot
	if s.FailoverFor == 0 || from >= s.end {
		return
	}
	s.outage = outage{from, from + max(1, int64(s.FailoverFor)/slot)*slot}
	s.plan(from, s.cut)
}

// cut begins the failover. Flights that wait for a message learn that no message will come, and ask
// again in vain.
func (s *simulation) cut() {
	for i := range s.replicas.trouble {
		s.replicas.trouble[i] = 0
	}
	if s.Loses {
		s.bulk.forget()
	}
	for i := range s.keys {
		k := &s.keys[i]
		refreshing := k.staleSince > 0
		s.countStale(k)
		if s.Loses {
			if k.freshUntil > s.now {
				s.bulk.fresh(s.now, k.freshUntil, -k.share)
			}
			k.wasFresh = k.freshTime(s.now)
			k.freshUntil, k.staleUntil, k.holder = 0, 0, nil
		}
		if s.Loses || k.arriving {
			k.turn++
			k.arriving = false
			s.expect(k, s.outage.to)
		} else if refreshing {
			s.expect(k, s.outage.to)
		}
		s.retry(k)
	}
}

// opensAfter is the number of failures after which a process with a breaker stops asking.
const opensAfter = 3

// patience returns how long a flight waits for a command that Redis doesn't answer.
func (s *simulation) patience(f *flight) int64 {
	if s.policy.Lease {
		trouble := &s.replicas.trouble[f.replica]
		if *trouble >= opensAfter {
			return 0
		}
		*trouble++
	}
	return int64(s.Timeout)
}
