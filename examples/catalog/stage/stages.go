package stage

import (
	"fmt"
	"slices"
)

// Stage is one protection with its description.
type Stage struct {
	Name  string // in addresses and flags
	Title string
	Flaw  string // in one sentence; empty: no known flaw
	Needs Needs

	open func(r *Replica) (Protection, error)
}

// Needs is the system that a stage needs in addition to Redis.
type Needs string

// These are the systems that a stage may need.
const (
	NeedsDB        Needs = "a database"
	NeedsMasters   Needs = "several Redis servers"
	NeedsZooKeeper Needs = "a ZooKeeper"
)

// All returns the stages in the order of their history, and then the variants.
func All() []Stage { return slices.Clone(all) }

var all = []Stage{
	{
		Name: "none", Title: "0: no protection", Flaw: "Everybody loads.",
		open: func(r *Replica) (Protection, error) { return &none{drops{r}}, nil },
	},
	{
		Name: "local", Title: "L: a lock in the process", Flaw: "Each replica loads.",
		open: func(r *Replica) (Protection, error) { return &local{drops: drops{r}}, nil },
	},
	{
		Name: "setnx", Title: "1: SETNX",
		Flaw: "A holder that dies leaves the lock behind for ever.",
		open: with(func(r *Replica, name string) mutex { return &setnx{r, name} }),
	},
	{
		Name: "expire", Title: "2: SETNX, then EXPIRE",
		Flaw: "A holder that dies between the two leaves the lock behind for ever.",
		open: with(func(r *Replica, name string) mutex { return &expire{setnx{r, name}} }),
	},
	{
		Name: "setnxex", Title: "3: SET NX EX",
		Flaw: "A slow holder deletes the lock of the next one.",
		open: with(func(r *Replica, name string) mutex { return &setnxex{setnx{r, name}} }),
	},
	{
		Name: "owner", Title: "4: a value of one's own",
		Flaw: "Between GET and DEL the lock may become another's.",
		open: with(func(r *Replica, name string) mutex { return newOwner(r, name) }),
	},
	{
		Name: "compare", Title: "5: compare and delete in Lua",
		Flaw: "A load longer than the lock goes on without it, and its late value overwrites a newer one.",
		open: with(func(r *Replica, name string) mutex { return newCompare(r, name) }),
	},
	{
		Name: "watchdog", Title: "6: a watchdog",
		Flaw: "A process that stands still loses the lock all the same, and its late value overwrites a newer one.",
		open: with(func(r *Replica, name string) mutex { return newWatchdog(r, name) }),
	},
	{
		Name: "cacheguard", Title: "7: cacheguard",
		open: newGuard,
	},

	{
		Name: "leaky", Title: "no null sentinel",
		Flaw: "What does not exist is asked for again each time.",
		open: func(r *Replica) (Protection, error) { return &leaky{drops{r}}, nil },
	},
	{
		Name: "forever", Title: "cached without an end",
		Flaw: "A change that nobody announces is never seen.",
		open: endless(with(func(r *Replica, name string) mutex { return newCompare(r, name) })),
	},
	{
		Name: "getset", Title: "a time as the value, GETSET",
		Flaw: "A replica whose clock is ahead takes a lock that is held, and who comes second moves its end.",
		open: with(func(r *Replica, name string) mutex { return &getset{Replica: r, name: name} }),
	},
	{
		Name: "force", Title: "a time as the value, deleted by who waits",
		Flaw: "Between GET and DEL another may have got the lock.",
		open: with(func(r *Replica, name string) mutex {
			return &force{getset{Replica: r, name: name}}
		}),
	},
	{
		Name: "watch", Title: "WATCH, MULTI, EXEC to unlock",
		Flaw: "The watchdog's own renewal aborts the unlock, and all wait until the lock ends.",
		open: with(func(r *Replica, name string) mutex { return &watch{*newWatchdog(r, name)} }),
	},
	{
		Name: "luasetnx", Title: "SETNX and EXPIRE in Lua",
		Flaw: "A slow holder deletes the lock of the next one.",
		open: with(func(r *Replica, name string) mutex { return &luasetnx{setnx{r, name}} }),
	},
	{
		Name: "sqlrow", Title: "a unique row in SQL",
		Flaw: "A holder that dies leaves the row behind for ever.", Needs: NeedsDB,
		open: with(func(r *Replica, name string) mutex { return &sqlrow{r, name} }),
	},
	{
		Name: "redlock", Title: "Redlock",
		Flaw: "A server that was restarted empty gives its vote twice.", Needs: NeedsMasters,
		open: openRedlock,
	},
	{
		Name: "herd", Title: "ZooKeeper, all watch the queue",
		Flaw: "Each change wakes all who wait.", Needs: NeedsZooKeeper,
		open: with(func(r *Replica, name string) mutex { return newQueue(r, name, watchAll) }),
	},
	{
		Name: "predecessor", Title: "ZooKeeper, each watches the one before", Needs: NeedsZooKeeper,
		open: with(func(r *Replica, name string) mutex { return newQueue(r, name, watchBefore) }),
	},
}

// Open opens the protection with this name for a replica.
func Open(name string, r *Replica) (Protection, error) {
	i := slices.IndexFunc(all, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no stage %q", name)
	}
	p, err := all[i].with(r)
	if err != nil {
		return nil, fmt.Errorf("stage %q: %w", name, err)
	}
	return p, nil
}

func (s Stage) with(r *Replica) (Protection, error) {
	has := map[Needs]bool{
		"": true, NeedsDB: r.DB != nil, NeedsMasters: len(r.Masters) > 0,
		NeedsZooKeeper: r.ZooKeeper != nil,
	}
	if !has[s.Needs] {
		return nil, fmt.Errorf("this needs %s", s.Needs)
	}
	return s.open(r)
}

// with returns the open function of a stage with this lock.
func with(lock func(r *Replica, name string) mutex) func(r *Replica) (Protection, error) {
	return func(r *Replica) (Protection, error) { return &locked{drops{r}, lock}, nil }
}

// endless returns the open function of a stage whose cached values never expire.
func endless(open func(r *Replica) (Protection, error)) func(r *Replica) (Protection, error) {
	return func(r *Replica) (Protection, error) {
		e := *r
		e.CacheTTL = 0
		return open(&e)
	}
}
