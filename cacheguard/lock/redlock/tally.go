package redlock

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// quorum returns how many masters make a majority. Any two majorities have a master in common.
func quorum(masters int) int { return masters/2 + 1 }

// tally counts the masters' replies to one request and evaluates them. It sends no requests.
type tally struct {
	masters int
	answers []answer // the replies so far, including errors
	mine    int
	not     int // number of replies that are other or free
	endless int // number of replies other with a lock that has no end
	// By master: whether it didn't reply the last time; nil: this makes no difference.
	away []bool
}

func (t *tally) add(a answer) {
	t.answers = append(t.answers, a)
	switch a.said {
	case mine:
		t.mine++
	case other, free:
		t.not++
		if a.stuck {
			t.endless++
		}
	}
}

// close counts each missing reply as no reply. why returns the error of a master.
func (t *tally) close(why func(master int) error) {
	came := make([]bool, t.masters)
	for _, a := range t.answers {
		came[a.master] = true
	}
	for i := range came {
		if !came[i] {
			t.add(answer{master: i, err: why(i)})
		}
	}
}

// pending returns how many replies are missing.
func (t *tally) pending() int { return t.masters - len(t.answers) }

// won reports whether a majority of the masters has replied that the lock is ours.
func (t *tally) won() bool { return t.mine >= quorum(t.masters) }

// refused reports whether a majority with the reply mine is impossible, because too many masters
// say that the lock isn't ours.
func (t *tally) refused() bool { return t.not > t.masters-quorum(t.masters) }

// stuck reports whether no majority is possible before somebody removes locks that have no end.
func (t *tally) stuck() bool { return t.endless > t.masters-quorum(t.masters) }

// unusable reports whether no majority replies.
func (t *tally) unusable() bool { return t.mine+t.not+t.pending() < quorum(t.masters) }

// settled reports whether more replies would not change the result of an acquisition. If a majority
// has replied and its votes are divided, settled doesn't wait for masters that were away already.
// Otherwise each divided vote would take NodeTimeout while one master is away, and in that time the
// votes of this claim would hinder other claims.
func (t *tally) settled() bool {
	return t.won() || t.unusable() || t.most() >= quorum(t.masters) ||
		t.mine+t.not >= quorum(t.masters) && !t.pendingThere()
}

// pendingThere reports whether a reply is missing from a master that replied the last time.
func (t *tally) pendingThere() bool {
	there := t.pending()
	for i, away := range t.away {
		if away && !slices.ContainsFunc(t.answers, func(a answer) bool { return a.master == i }) {
			there--
		}
	}
	return there > 0
}

// decided reports whether more replies would not change the result of a renewal or a release.
func (t *tally) decided() bool { return t.won() || t.refused() }

// most returns the largest number of masters that have the lock of the same other claim.
func (t *tally) most() int {
	most, count := 0, make(map[string]int)
	for _, a := range t.answers {
		if a.said == other {
			claim := a.holder[:min(len(a.holder), claimSize)]
			count[claim]++
			most = max(most, count[claim])
		}
	}
	return most
}

// split reports whether the masters' votes are split so that no other claim can have the lock: the
// other claim with the most votes has no majority, even if it had all masters that didn't reply.
func (t *tally) split() bool {
	return !t.won() && t.most()+t.masters-t.mine-t.not < quorum(t.masters)
}

// met reports whether nobody may have the lock because other claims asked at the same moment: this
// claim has some of the votes, and nobody is known to have a majority. met can't tell two cases
// apart: the masters that didn't reply make a majority for another claim, or they are away while
// the votes of the rest are divided.
func (t *tally) met() bool { return t.mine > 0 && !t.won() && t.most() < quorum(t.masters) }

// left returns the time after which a majority of the masters can be free, if nobody releases or
// renews anything. It returns 0 if this claim has a majority, because the claim gives this majority
// back. It returns a negative time if the time isn't known.
func (t *tally) left() time.Duration {
	missing := quorum(t.masters) - t.mine
	if missing <= 0 { // the majority replied too late for the lease
		return 0
	}
	var ends []time.Duration
	for _, a := range t.answers {
		if a.said == other && a.left >= 0 {
			ends = append(ends, a.left)
		}
	}
	if missing > len(ends) {
		return -1
	}
	slices.Sort(ends)
	return ends[missing-1]
}

// place returns the place of this process among the waiting processes. It is the median of the
// masters' replies.
func (t *tally) place() int {
	var places []int
	for _, a := range t.answers {
		if a.said == other {
			places = append(places, a.place)
		}
	}
	if len(places) == 0 {
		return 0
	}
	slices.Sort(places)
	return places[len(places)/2]
}

// trouble returns the error of a request if no majority replied, or if the replies have no majority
// for one result.
func (t *tally) trouble() error {
	errs := []error{
		fmt.Errorf("%d of %d masters answered, %d must", t.mine+t.not, t.masters,
			quorum(t.masters)),
	}
	if !t.unusable() {
		errs[0] = fmt.Errorf("%d of %d masters have it, %d have it not, %d must agree", t.mine,
			t.masters, t.not, quorum(t.masters))
	}
	for _, a := range t.answers {
		if a.err != nil {
			errs = append(errs, a.err)
		}
	}
	return errors.Join(errs...)
}

// validity returns the time for which a lock is valid, counted from before the first request was
// sent. It is shorter than Lease because a master's clock may be faster than this process' clock by
// drift.
func (o Options) validity() time.Duration {
	return o.Lease - time.Duration(o.Drift*float64(o.Lease)) - roundingDrift
}
