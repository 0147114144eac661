package program

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/slowdb"
)

// scenario is a sequence of events that happen to a fleet.
type scenario struct {
	Name  string
	What  string // a sentence about the events
	Least int    // the least number of processes

	run   func(t *contest) error
	wrong []fault // the faults that count in this scenario
}

// fault is a behaviour that is forbidden in a scenario.
type fault struct {
	words string
	seen  func(r contestResult) bool
}

// These are the faults.
var (
	everybodyLoads = fault{"loads more than once", func(r contestResult) bool {
		return slices.Max(r.Loads) > r.Need
	}}
	loadsAgain    = fault{"loads more often than it must", everybodyLoads.seen}
	loadsInCrowds = fault{"loads more than once in a process", func(r contestResult) bool {
		return slices.Max(r.Loads) > r.Need
	}}
	errs  = fault{"errors", func(r contestResult) bool { return r.Errors > 0 }}
	stuck = fault{"no answer for some within -patience", func(r contestResult) bool {
		return r.Stuck > 0
	}}
	servesStale = fault{"serves what is stale after the change was acknowledged", func(
		r contestResult,
	) bool {
		return r.Stale > 0
	}}
	leavesStale = fault{"leaves what is stale in the cache", func(r contestResult) bool {
		return r.Left > 0
	}}
)

// scenarios are all scenarios, in the order in which they are listed.
var scenarios = []scenario{
	{
		"cold", "everybody asks for a key that is not cached, at the same moment", 1,
		cold, []fault{everybodyLoads, errs, stuck, servesStale},
	},
	{
		"missing", "everybody asks for what does not exist, and then again", 1,
		notThere, []fault{everybodyLoads, errs, stuck},
	},
	{
		"failing", "everybody asks for a cold key, and the origin fails after its time", 1,
		failing, []fault{everybodyLoads, stuck},
	},
	{
		"avalanche",
		"no key is cached, as after a restart of Redis; at the same moment each caller of a process asks for another key, and all processes ask for the same keys",
		1,
		avalanche, []fault{everybodyLoads, errs, stuck, servesStale},
	},
	{
		"killed",
		"everybody asks for a cold key, and the process that loads it is killed during the load", 2,
		killedLeader, []fault{loadsAgain, errs, stuck},
	},
	{
		"redis-gone",
		"Redis is killed while a key is hot, then everybody asks for the key; a contender that only returns Redis' error has failed",
		1,
		redisGone, []fault{loadsInCrowds, errs, stuck, servesStale},
	},
	{
		"slow", "the load takes longer than a lock lasts", 1,
		slowLoad, []fault{everybodyLoads, errs, stuck},
	},
	{
		"race-same",
		"the value changes during the load, and the process that loads tells the caches", 1,
		func(t *contest) error {
			return race(t, 0)
		}, []fault{loadsAgain, errs, stuck, servesStale, leavesStale},
	},
	{
		"race-other", "the value changes during the load, and another process tells the caches", 2,
		func(t *contest) error {
			return race(t, 1)
		}, []fault{loadsAgain, errs, stuck, servesStale, leavesStale},
	},
}

// verdict returns the faults of any repetition, or "" if there were none.
func (s scenario) verdict(rs []contestResult) string {
	var all []string
	for _, f := range s.wrong {
		if slices.ContainsFunc(rs, f.seen) {
			all = append(all, f.words)
		}
	}
	return strings.Join(all, ", ")
}

// cold is the plain stampede. Each of its rounds uses a new key.
func cold(t *contest) error {
	for n := range t.arena.WarmUp + t.arena.Rounds {
		if n == t.arena.WarmUp {
			t.result = contestResult{}
		}
		key := t.key(slowdb.Plan{Takes: t.arena.Load})
		if err := t.round(1, func() error {
			b := t.burst(key, t.arena.Callers)
			defer t.awoken(b, key)
			return t.wait(b, 1, &t.result.Stale)
		}, key); err != nil {
			return err
		}
	}
	return nil
}

// avalanche is a stampede on many keys at once: each process has one caller for each key.
func avalanche(t *contest) error {
	many := t.arena.Keys
	common, keys := t.keyed(many, slowdb.Plan{Takes: t.arena.Load})
	return t.round(many, func() error {
		return t.wait(t.burstAt(common, many, many, t.soon(many)), 1, &t.result.Stale)
	}, keys...)
}

// redisGone kills Redis while a key is hot. After that each process may load once. No caller must
// get an error, and no caller must wait for a server that doesn't reply.
func redisGone(t *contest) error {
	key := t.key(slowdb.Plan{Takes: t.arena.Load})
	if err := t.wait(t.burst(key, 1), 1, &t.result.Stale); err != nil {
		return err
	}
	before := len(t.origin.Loads(key))
	t.result = contestResult{}
	t.arena.server.own.Kill() // the command has no -redis
	err := t.wait(t.burst(key, t.arena.Callers), 1, &t.result.Stale)
	t.result.Loads, t.result.Need = []int{len(t.origin.Loads(key)) - before}, len(t.fleet)
	t.result.AtOnce = slowdb.MostAtOnce(t.origin.Loads(key)[before:])
	return errors.Join(err, t.arena.server.own.Restart())
}

// In notThere two bursts ask for a value that the origin doesn't have. The second burst must not
// reach the origin.
func notThere(t *contest) error {
	key := t.key(slowdb.Plan{Takes: t.arena.Load, Missing: true})
	return t.round(1, func() error {
		if err := t.wait(t.burst(key, t.arena.Callers), 0, &t.result.Stale); err != nil {
			return err
		}
		first := len(t.result.Took)
		err := t.wait(t.burst(key, t.arena.Callers), 0, &t.result.Stale)
		// Otherwise the median would mix callers that wait for a load with callers that don't.
		t.result.Took = t.result.Took[:first]
		return err
	}, key)
}

// In failing the origin fails, so all callers get an error. They should get it soon, and the origin
// should get few requests.
func failing(t *contest) error {
	return oneBurst(t, slowdb.Plan{Takes: t.arena.Load, Fails: true})
}

// In slowLoad the load takes longer than the lock lasts.
func slowLoad(t *contest) error { return oneBurst(t, slowdb.Plan{Takes: t.arena.Load}) }

func oneBurst(t *contest, p slowdb.Plan) error {
	key := t.key(p)
	return t.round(1, func() error {
		return t.wait(t.burst(key, t.arena.Callers), 1, &t.result.Stale)
	}, key)
}

// killedLeader kills the first process that loads, in the middle of it.
func killedLeader(t *contest) error {
	key := t.key(slowdb.Plan{Takes: t.arena.Load})
	return t.round(2, func() error {
		b := t.burst(key, t.arena.Callers)
		if err := t.midway(key); err != nil {
			return err
		}
		t.fleet[t.loader(key)].kill()
		return t.wait(b, 1, &t.result.Stale)
	}, key)
}

// race changes the value in the middle of the first load. The replica that comes after places
// behind the loading replica tells the caches. Callers that asked before the change was
// acknowledged may get either value. Callers that ask after it, or after the end of the round, must
// not get the old value.
func race(t *contest, after int) error {
	key := t.key(slowdb.Plan{Takes: t.arena.Load})
	return t.round(2, func() error {
		first := t.burst(key, t.arena.Callers)
		if err := t.midway(key); err != nil {
			return err
		}
		version, err := t.change(key, (t.loader(key)+after)%len(t.fleet))
		if err != nil {
			return err
		}
		second := t.burstAt(key, 0, max(1, t.arena.Callers/10), time.Now())
		if err := t.wait(first, 1, &t.result.Stale); err != nil {
			return err
		}
		if err := t.wait(second, version, &t.result.Stale); err != nil {
			return err
		}
		return t.wait(t.burst(key, 1), version, &t.result.Left)
	}, key)
}
