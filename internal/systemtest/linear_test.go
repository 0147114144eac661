package systemtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// What is promised of a key that is read and changed at the same time is checked twice.
//
// Each read alone: one that begins when a change has returned in its own process, or when the
// message of a change has arrived in it, returns that change or a newer one. This holds for every
// answer, whatever went wrong meanwhile.
//
// All reads together, as a register that is linearizable (porcupine): while a change is on its way,
// reads agree on when it happened; nobody gets the old version after somebody got the new one. This
// is more than is promised, so what is admitted is left out, which a history of reads can take:
// leaving out a read makes no wrong history right but for that read. Left out are
//   - answers that never stood in the store (a load that lost its lease, or had none): for the
//     callers that waited from before, and while a change is on its way such a load may see it
//     earlier than those that read the store;
//   - stale answers: a flight that has a stale value in hand offers it, although another one may
//     have loaded meanwhile;
//   - in a fleet, reads during a change, which lasts until its message has arrived everywhere: a
//     process may see the new version and another one, which has not heard yet, let a caller join a
//     flight from before (see the package's documentation, "What is not promised").
//
// There is no local tier. Set has a key for itself, as it must: the other changes may come at the
// same time.

// With StrongReads the exception for fleets is none, and a read in any process that begins when a
// change has returned in another one returns that or a newer one.

// TestLinearInOneProcess: with replies that get lost, values and leases that are evicted, and
// leases that end during loads.
func TestLinearInOneProcess(t *testing.T) {
	for name, change := range registerOptions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegisters(t, 1, byKey, change)
			r.run(t)
			r.check(t, func(reading) bool { return true })
		})
	}
	t.Run("without messages", func(t *testing.T) { // a process knows what it has changed itself
		r := newRegisters(t, 1, byKey, registerOptions["plain"])
		r.messages.Blackhole(true)
		r.run(t)
		r.check(t, func(reading) bool { return true })
	})
}

// TestLinearInAFleet is the same for several processes.
func TestLinearInAFleet(t *testing.T) {
	for name, change := range registerOptions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegisters(t, 3, byKey, change)
			r.run(t)
			r.check(t, r.duringNoChange())
		})
	}
}

// TestStrongReads is the same for several processes that don't wait for messages, changed by key
// and by tag.
func TestStrongReads(t *testing.T) {
	kinds := map[string]registerKind{
		"one by one": byKey, "tags": registerKinds["tags"], "many": registerKinds["many"],
	}
	for kind, k := range kinds {
		k.strong, k.together = true, true
		for name, change := range registerOptions {
			if name == "soft timeout" { // they exclude each other
				continue
			}
			t.Run(kind+"/"+name, func(t *testing.T) {
				if !redistest.Full() && name != "plain" {
					t.Skip("this takes long: set CACHEGUARD_TEST=full for it")
				}
				t.Parallel()
				r := newRegisters(t, 3, k, func(o *cacheguard.Options[fact]) {
					change(o)
					o.StrongReads = true
				})
				r.run(t)
				r.check(t, func(reading) bool { return true })
			})
		}
	}
}

// duringNoChange says of a read whether no change of its key was on its way.
func (r *registers) duringNoChange() func(reading) bool {
	changes := make(map[string][]changing)
	for _, w := range r.writes {
		changes[w.Key] = append(changes[w.Key], w)
	}
	return func(a reading) bool {
		for _, w := range changes[a.key] {
			if a.began.Before(w.heard) && w.began.Before(a.ended) {
				return false
			}
		}
		return true
	}
}

// registerKind is how registers are read and changed.
type registerKind struct {
	ways []way
	read func(ctx context.Context, r *registers, m int,
		key string) (cacheguard.Result[fact], error)
	scripts  []string // whose replies get lost
	evicts   []string // names that disappear, but for the prefix
	least    int      // reads and changes that show something
	each     bool     // reads don't say how they were answered, so that they are checked alone
	strong   bool     // reads are strong
	together bool     // messages come on the same client as commands, as they mostly do
}

var byKey = registerKind{
	ways: ways,
	read: func(
		ctx context.Context, r *registers, m int, key string,
	) (cacheguard.Result[fact], error) {
		return r.members[m].cache.GetResult(ctx, key, r.load(key))
	},
	scripts: []string{"lease", "fill", "renew", "release", "claim", "invalidate"},
	least:   50,
}

var registerOptions = map[string]func(*cacheguard.Options[fact]){
	"plain": func(*cacheguard.Options[fact]) {},
	"stale windows": func(o *cacheguard.Options[fact]) {
		o.TTL, o.StaleWhileRevalidate, o.StaleIfError, o.EarlyRefresh = 20*time.Millisecond,
			40*time.Millisecond, 60*time.Millisecond, 1
	},
	"soft timeout": func(o *cacheguard.Options[fact]) {
		o.TTL, o.StaleIfError, o.SoftTimeout = 20*time.Millisecond, 200*time.Millisecond,
			time.Millisecond
	},
}

// registers are the keys of a fleet and what was done to them.
type registers struct {
	registerKind
	members  []*member
	proxies  []*redistest.Proxy // of the members' commands
	messages *redistest.Proxy   // of all subscriptions
	rdb      *redis.Client      // past the proxies
	prefix   string
	lease    time.Duration
	origin   *ledger
	acks     []*ledger                // what each member owes
	alone    map[string]*sync.RWMutex // held by Set alone, by others together

	mu     sync.Mutex // guards what follows
	reads  []reading
	shows  int // reads that can show something
	writes []changing
	failed []error
}

type reading struct {
	cacheguard.Result[fact]
	err          error
	key          string
	member       int
	began, ended time.Time
	most         int64 // what the origin had when it ended
}

// unstored says of a read without an error whether its answer is stale or never stood in the store.
func (a reading) unstored() bool {
	return a.Degraded || a.FreshFor == 0 || a.Status == cacheguard.StatusStale
}

type changing struct {
	fact
	way          string
	member       int
	began, heard time.Time // heard: it has returned, and its message has arrived everywhere
}

const (
	registerLease = 40 * time.Millisecond // on a machine that isn't busy
	registerKeys  = 4
)

// connecting returns how long a first request takes on a new connection, at worst of a few, but not
// how long the machine may have stood still.
func connecting(t *testing.T, addr string) (worst time.Duration) {
	t.Helper()
	for range 5 {
		began, rdb := time.Now(), redis.NewClient(&redis.Options{Addr: addr})
		err := rdb.Ping(t.Context()).Err()
		worst = max(worst, time.Since(began))
		if _ = rdb.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return min(worst, time.Second/2)
}

func newRegisters(
	t *testing.T, members int, kind registerKind, change func(*cacheguard.Options[fact]),
) *registers {
	t.Helper()
	server := redistest.Start(t) // one of its own, for others run beside it
	// Leases must last for some steps, and OpTimeout for a new connection.
	unit := connecting(t, server.Addr())
	r := &registers{
		lease:        max(registerLease, 4*unit),
		registerKind: kind,
		rdb:          redis.NewClient(&redis.Options{Addr: server.Addr()}), prefix: memberPrefix(),
		origin: newLedger(), alone: make(map[string]*sync.RWMutex),
	}
	t.Cleanup(func() { _ = r.rdb.Close() })
	for n := range registerKeys {
		r.alone[registerKey(n)] = &sync.RWMutex{}
	}
	r.messages = redistest.StartProxy(t, server.Addr())
	for range members {
		p := redistest.StartProxy(t, server.Addr())
		opts := cacheguard.Options[fact]{LeaseTTL: r.lease}
		change(&opts)
		r.proxies = append(r.proxies, p)
		r.acks = append(r.acks, newLedger())
		at := seat{
			redis: p.Addr(),
			store: redisstore.Options{
				Prefix: r.prefix, OpTimeout: max(400*time.Millisecond, 8*unit),
			},
			cache: opts,
		}
		if !kind.together {
			at.messages = r.messages.Addr()
		}
		if kind.strong {
			at.through = func(s *redisstore.Store) cacheguard.Store { return lateStore{s} }
		}
		r.members = append(r.members, newMember(t, at))
	}
	return r
}

// lateStore is a store whose messages arrive late, in order.
type lateStore struct{ cacheguard.Store }

func (s lateStore) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	messages, over := make(chan cacheguard.Message, 10000), make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		for {
			select {
			case m := <-messages:
				if m.Kind == cacheguard.MessageChanged || m.Kind == cacheguard.MessageTags {
					<-time.After(rand.N(8 * time.Millisecond)) // the message is on its way
				}
				tell(m)
			case <-over:
				return
			}
		}
	})
	end := s.Store.Listen(cache, func(m cacheguard.Message) {
		select {
		case messages <- m:
		case <-over:
		}
	})
	return func() {
		end()
		close(over)
		telling.Wait()
	}
}

func registerKey(n int) string { return fmt.Sprint("r", n) }

// run has callers read and change, and faults come, for a while.
func (r *registers) run(t *testing.T) {
	callers, lasts := 6, 1500*time.Millisecond
	if redistest.Full() {
		lasts = 6 * time.Second
	}
	// A busy machine takes longer to see enough.
	ctx, cancel := context.WithTimeout(t.Context(), 20*lasts)
	defer cancel()
	var working sync.WaitGroup
	working.Go(func() {
		defer cancel()
		for ok := pause(ctx, lasts); ok && !r.enough(); ok = pause(ctx, lasts/5) {
		}
	})
	for range callers {
		working.Go(func() {
			for pause(ctx, rand.N(2*time.Millisecond)) {
				m, key := rand.IntN(len(r.members)), registerKey(rand.IntN(registerKeys))
				if rand.IntN(6) == 0 {
					r.write(m, key)
				}
				r.read(m, key)
			}
		})
	}
	for _, p := range r.proxies {
		working.Go(func() { r.loseReplies(ctx, p) })
	}
	working.Go(func() { r.evict(ctx) })
	working.Wait()
	for _, err := range r.failed {
		t.Fatal(err)
	}
}

// enough reports whether there were so many reads and changes that those which are checked will do.
func (r *registers) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shows/3 >= 2*r.least && len(r.writes) >= r.least
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (r *registers) read(m int, key string) {
	ctx := context.Background()
	if rand.IntN(10) == 0 { // one who leaves
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(3*time.Millisecond))
		defer cancel()
	}
	a := reading{key: key, member: m, began: time.Now()}
	a.Result, a.err = r.registerKind.read(ctx, r, m, key)
	a.ended = time.Now()
	a.most = r.origin.read(key).Version
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads = append(r.reads, a)
	if a.err == nil && (r.each || !a.unstored()) {
		r.shows++
	}
}

// load returns at once, in a moment, or when its lease would be over but for renewals.
func (r *registers) load(key string) cacheguard.LoadFunc[fact] {
	return func(ctx context.Context) (fact, error) {
		f := r.origin.read(key)
		switch n := rand.IntN(10); {
		case n < 5:
			return f, nil
		case n < 9 && pause(ctx, rand.N(3*time.Millisecond)):
			return f, nil
		case n == 9 && pause(ctx, 3*r.lease/2):
			return f, nil
		}
		return f, context.Cause(ctx)
	}
}

// write changes a key and returns when everybody has heard.
func (r *registers) write(m int, key string) {
	way := r.ways[rand.IntN(len(r.ways))]
	if lock := r.alone[key]; way.alone {
		lock.Lock()
		defer lock.Unlock()
	} else {
		lock.RLock()
		defer lock.RUnlock()
	}
	ctx, cache := context.Background(), r.members[m].cache
	w := changing{way: way.name, member: m, began: time.Now()}
	var err error
	if w.fact, err = way.make(ctx, cache, r.origin, key); err != nil { // then it is not over yet
		for began := time.Now(); err != nil && time.Since(began) < replicaPatience; {
			err = cache.Invalidate(ctx, key)
		}
		if err == nil && w.Version == 0 { // an Update that hasn't written
			return
		}
	}
	returned := time.Now()
	r.acks[m].acknowledge(w.fact, returned)
	w.heard = returned
	if r.strong {
		for _, l := range r.acks {
			l.acknowledge(w.fact, returned)
		}
	} else if err == nil && len(r.members) > 1 {
		err = r.heardEverywhere(&w)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, w)
	if err != nil {
		r.failed = append(r.failed, err)
	}
}

// heardEverywhere returns when every member has been told of a change that has returned.
func (r *registers) heardEverywhere(w *changing) error {
	marks := 0
	mark, sent, err := r.mark(w, marks)
	if err != nil {
		return err
	}
	for n, m := range r.members {
		msg, err := m.heard(cacheguard.MessageChanged, mark, sent)
		for errors.Is(err, errMissed) && marks < mostMissed {
			marks++
			if mark, sent, err = r.mark(w, marks); err == nil {
				msg, err = m.heard(cacheguard.MessageChanged, mark, sent)
			}
		}
		if err != nil {
			return err
		}
		if n != w.member {
			r.acks[n].acknowledge(w.fact, msg.at)
		}
		if msg.at.After(w.heard) {
			w.heard = msg.at
		}
	}
	return nil
}

// mark invalidates a key that nobody reads, and returns it with a moment just before. Messages
// arrive in the order in which they were sent, so whoever is told of the mark has been told of the
// change, or of a break in which its message may have been lost.
func (r *registers) mark(w *changing, n int) (mark string, sent time.Time, err error) {
	mark, sent = fmt.Sprintf("mark-%s-%d-%d", w.Key, w.Version, n), time.Now()
	for {
		err = r.members[w.member].cache.Invalidate(context.Background(), mark)
		if err == nil || time.Since(sent) > replicaPatience {
			return mark, sent, err
		}
	}
}

// loseReplies has the replies to all kinds of steps get lost, one after another, and some replies
// to reads be late.
func (r *registers) loseReplies(ctx context.Context, p *redistest.Proxy) {
	scripts := make(map[string]func(redistest.Command) bool)
	for _, name := range r.scripts {
		script, err := redisScript(name)
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed = append(r.failed, err)
			return
		}
		scripts[name] = redistest.IsEval(script)
	}
	reads := redistest.IsCommand("GET", "MGET", "ZMSCORE")
	steps := append(slices.Collect(maps.Values(scripts)), reads)
	struck := func(f *redistest.Fault) bool {
		defer f.Disarm()
		select {
		case <-f.Struck():
			return true
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		return false
	}
	for pause(ctx, rand.N(60*time.Millisecond)) {
		if rand.IntN(2) == 0 {
			struck(p.DropReply(steps[rand.IntN(len(steps))]))
			continue
		}
		// A read that is carried out just before a change hears of it when the change has returned.
		first, then := make(chan struct{}), make(chan struct{})
		its := redistest.HasKey(r.prefix + ":facts:{" + registerKey(rand.IntN(registerKeys)) + "}")
		if struck(p.DelayCommand(redistest.All(scripts["invalidate"], its), first)) {
			late := p.DelayReply(redistest.All(reads, its), then)
			pause(ctx, 3*time.Millisecond)
			close(first)
			pause(ctx, 3*time.Millisecond)
			close(then)
			late.Disarm()
		} else {
			close(first)
		}
	}
}

// evict has values and leases disappear.
func (r *registers) evict(ctx context.Context) {
	for pause(ctx, rand.N(10*time.Millisecond)) {
		name := r.prefix + ":facts:{" + registerKey(rand.IntN(registerKeys)) + "}"
		if rand.IntN(2) == 0 {
			name += ":lease"
		}
		_ = r.rdb.Del(ctx, name).Err() // at worst it stays
		if len(r.evicts) > 0 && rand.IntN(10) == 0 {
			_ = r.rdb.Del(ctx, r.prefix+r.evicts[rand.IntN(len(r.evicts))]).Err()
		}
	}
}

// check checks each read alone, and then together those that the function has in.
func (r *registers) check(t *testing.T, together func(reading) bool) {
	t.Helper()
	var base time.Time
	if len(r.writes) > 0 {
		base = r.writes[0].began.Add(-time.Hour)
	}
	at := func(i time.Time) int64 { return int64(i.Sub(base)) }
	var history []porcupine.Operation
	wrong, answers, unstored, left := 0, 0, 0, 0
	for _, a := range r.reads {
		if a.err != nil {
			continue
		}
		answers++
		if owed := r.acks[a.member].owed(a.key, a.began); a.Value.Key != a.key ||
			a.Value.Version < owed || a.Value.Version > a.most {
			if wrong++; wrong <= 5 {
				t.Errorf("member %d, %s: a read of %v got %+v; when it began version %d was acknowledged, when it ended the origin had %d",
					a.member, a.key, a.ended.Sub(a.began), a.Result, owed, a.most)
			}
		}
		switch {
		case a.unstored():
			unstored++
		case !together(a):
			left++
		default:
			history = append(history, porcupine.Operation{
				ClientId: a.member, Input: registerInput{key: a.key}, Output: a.Value.Version,
				Call: at(a.began), Return: at(a.ended),
			})
		}
	}
	for _, w := range r.writes {
		history = append(history, porcupine.Operation{
			ClientId: w.member, Input: registerInput{key: w.Key, write: w.Version, way: w.way},
			Call: at(w.began), Return: at(w.heard),
		})
	}
	t.Logf("%d reads, of which %d were answered, and %d changes; not among those that are checked together: %d answers that were stale or not stored, %d during a change",
		len(r.reads), answers, len(r.writes), unstored, left)
	if wrong > 0 {
		t.Errorf("%d reads returned what they must not", wrong)
	}
	shows := len(history) - len(r.writes)
	if r.each {
		shows = answers
	}
	if min(shows, len(r.writes)) < r.least {
		t.Errorf("only %d operations: this shows nothing", len(history))
	}
	if got := porcupine.CheckOperationsTimeout(register, history,
		replicaPatience); got != porcupine.Ok {
		t.Errorf("the history is not linearizable: %v", got)
	}
}

// registerInput is a read, or the write of a version.
type registerInput struct {
	key   string
	write int64 // 0: it is a read
	way   string
}

// register is what each key is: a read returns what was written last. No version at all is version
// 0.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := make(map[string][]porcupine.Operation)
		for _, op := range history {
			key := op.Input.(registerInput).key
			byKey[key] = append(byKey[key], op)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		if in := input.(registerInput); in.write > 0 {
			return true, in.write
		}
		return output == state, state
	},
}
