package redlock

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// quorum is how many of so many masters make a majority: any two majorities have a master in
// common.
func quorum(masters int) int { return masters/2 + 1 }

// tally counts what the masters answer to one question. It decides; it asks nobody.
type tally struct {
	masters int
	answers []answer // that have come, of errors too
	mine    int
	not     int    // other and free
	endless int    // of other, with a lock that has no end
	away    []bool // by master: it did not answer the last time; nil: that doesn't matter
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

// close counts what hasn't come as no answer. why is the error for a master.
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

// pending is how many answers haven't come.
func (t *tally) pending() int { return t.masters - len(t.answers) }

// won reports whether a majority says mine.
func (t *tally) won() bool { return t.mine >= quorum(t.masters) }

// refused reports whether so many say that it isn't, that there can be no majority that says mine.
func (t *tally) refused() bool { return t.not > t.masters-quorum(t.masters) }

// stuck reports whether there can't be a majority before somebody removes locks that have no end.
func (t *tally) stuck() bool { return t.endless > t.masters-quorum(t.masters) }

// unusable reports whether no majority answers.
func (t *tally) unusable() bool { return t.mine+t.not+t.pending() < quorum(t.masters) }

// settled reports whether more answers would not change what an acquisition comes to. When a
// majority has answered, and their votes are divided, those that were away already are not waited
// for: otherwise each such vote would take NodeTimeout as long as one master is away, and meanwhile
// the votes that one has would be in the way of the others.
func (t *tally) settled() bool {
	return t.won() || t.unusable() || t.most() >= quorum(t.masters) ||
		t.mine+t.not >= quorum(t.masters) && !t.pendingThere()
}

// pendingThere reports whether one of those that haven't answered did so the last time.
func (t *tally) pendingThere() bool {
	there := t.pending()
	for i, away := range t.away {
		if away && !slices.ContainsFunc(t.answers, func(a answer) bool { return a.master == i }) {
			there--
		}
	}
	return there > 0
}

// decided reports whether more answers would not change what a renewal or a release comes to.
func (t *tally) decided() bool { return t.won() || t.refused() }

// most is how many masters have the lock of one and the same other.
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

// split reports whether the masters' votes are split so that nobody can have the lock: whoever has
// most of them has no majority, even with all that didn't answer.
func (t *tally) split() bool {
	return !t.won() && t.most()+t.masters-t.mine-t.not < quorum(t.masters)
}

// met reports whether others who asked at the same moment may be why nobody has the lock: this one
// has some of the votes, and nobody is known to have a majority. Masters that didn't answer may
// make one, or they are away and the votes of those that are left are divided, which looks the
// same.
func (t *tally) met() bool { return t.mine > 0 && !t.won() && t.most() < quorum(t.masters) }

// left is after what time a majority of masters can be free, if nobody releases or renews anything:
// 0 if what this one has, and gives back, is a majority; negative if it is not known.
func (t *tally) left() time.Duration {
	missing := quorum(t.masters) - t.mine
	if missing <= 0 { // it was told so too late for the lease
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

// place is the asker's among those who wait, as most masters see it.
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

// trouble is the error of a question that no majority has answered, or not alike.
func (t *tally) trouble() error {
	errs := []error{fmt.Errorf("%d of %d masters answered, %d must", t.mine+t.not, t.masters, quorum(t.masters))}
	if !t.unusable() {
		errs[0] = fmt.Errorf("%d of %d masters have it, %d have it not, %d must agree", t.mine, t.masters, t.not, quorum(t.masters))
	}
	for _, a := range t.answers {
		if a.err != nil {
			errs = append(errs, a.err)
		}
	}
	return errors.Join(errs...)
}

// validity is for how long a lock counts, from before the first request was sent: any master's
// clock may be faster than ours by drift.
func (o Options) validity() time.Duration {
	return o.Lease - time.Duration(o.Drift*float64(o.Lease)) - roundingDrift
}
