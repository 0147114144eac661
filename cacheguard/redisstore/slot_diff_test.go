package redisstore_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// mirror executes random steps on Redis and on a protocol.Slot, which must give the same answers
// and messages. Every time is some hours, and ends on both sides when the mirror says so. So no
// test has to wait for a clock.
type mirror struct {
	*rand.Rand
	store *redisstore.Store
	other *redis.Client // makes keys expire, which no step does
	key   cacheguard.Key
	names // the names of the key

	slot   protocol.Slot
	grants []cacheguard.Grant
	path   []string
	want   []cacheguard.Message

	mu  sync.Mutex // guards got
	got []cacheguard.Message
}

type names struct{ value, lease, waiters string }

const (
	present = time.Hour // the time on the slot's clock, which stands still
	markAt  = 20
	shown   = 4 << 10 // the largest frame in a message
)

func mirrorID(n int) (id cacheguard.ID) {
	copy(id[:], fmt.Sprintf("load %011d", n))
	return id
}

// frame returns a frame of the load, with room for a mark or without it. Some frames are too large
// for a message, and some have tags.
func (m *mirror) frame(load cacheguard.ID) string {
	f := "v0" + string(load[:]) + "..." + strings.Repeat("\x00", 8) + "body"
	switch m.IntN(8) {
	case 2, 3:
		note := []byte("note")[:m.IntN(2)*4]
		h := frame.Header{
			ID: load, Created: time.Unix(1e9, 0), Extension: frame.Extension{Note: note},
		}
		if m.IntN(4) > 0 {
			h.Tags = frame.Tags("\x03tag\x05\x00soft")[:4+m.IntN(2)*6]
		}
		f = string(frame.New(h, []byte("body")))
	case 0:
		f = f[:markAt+3]
	case 1:
		f += strings.Repeat("x", shown)
	}
	return f
}

func (m *mirror) token() cacheguard.ID { return mirrorID(1 + m.IntN(4)) }

func (m *mirror) hours() time.Duration { return time.Duration(1+m.IntN(3)) * time.Hour }

// grant returns one of the grants that were given, or a grant that nobody has.
func (m *mirror) grant() cacheguard.Grant {
	if len(m.grants) == 0 || m.IntN(10) == 0 {
		return cacheguard.Grant{Token: m.token(), Number: 1e15 + m.Int64N(1000)}
	}
	last := min(len(m.grants), 4)
	return m.grants[len(m.grants)-1-m.IntN(last)]
}

func (m *mirror) tells(tells protocol.Tells, message cacheguard.Message) {
	if tells != protocol.TellsNothing {
		message.Key = m.key.Key
		m.want = append(m.want, message)
	}
}

// step executes one step on both sides, and returns both answers as text.
func (m *mirror) step(ctx context.Context) (redisSays, slotSays any, err error) {
	said := func(format string, args ...any) {
		m.path = append(m.path, fmt.Sprintf(format, args...))
	}
	switch m.IntN(15) {
	case 0, 1, 2, 3:
		return m.ask(ctx, said)
	case 4, 5:
		g, ttl := m.grant(), m.hours()
		f := m.frame(g.Token)
		said("fill %s %d, %d bytes", g.Token[:], g.Number, len(f))
		answer, err := m.store.Fill(ctx, m.key, g, []byte(f), ttl)
		kind, tells := m.slot.Fill(present, protocol.ID(g.Token), g.Number, f, ttl)
		message := cacheguard.Message{Kind: cacheguard.MessageFilled, Load: g.Token}
		if len(f) <= shown {
			message.Frame = []byte(f)
		}
		m.tells(tells, message)
		return answer, map[protocol.Kind]cacheguard.FillAnswer{
			protocol.Stored: cacheguard.FillStored, protocol.Gone: cacheguard.FillGone,
			protocol.Taken: cacheguard.FillOther,
		}[kind], err
	case 6, 7:
		return m.conclude(ctx, said)
	case 8:
		g, ttl := m.grant(), m.hours()
		said("renew %s %d", g.Token[:], g.Number)
		answer, err := m.store.Renew(ctx, m.key, g, ttl)
		kind := m.slot.Renew(present, protocol.ID(g.Token), g.Number, ttl)
		return answer, map[protocol.Kind]cacheguard.Holding{
			protocol.Renewed: cacheguard.HoldingMine, protocol.Gone: cacheguard.HoldingGone,
			protocol.Taken: cacheguard.HoldingOther,
		}[kind], err
	case 9:
		token := m.token()
		said("release %s", token[:])
		err := m.store.Release(ctx, m.key, token)
		m.tells(m.slot.Release(present, protocol.ID(token)),
			cacheguard.Message{Kind: cacheguard.MessageReleased, Load: token})
		return nil, nil, err
	case 10:
		token, ttl := m.token(), m.hours()
		said("claim %s", token[:])
		g, err := m.store.Claim(ctx, m.key, token, ttl)
		number, tells := m.slot.Claim(present, protocol.ID(token), g.Number, ttl)
		m.tells(tells, cacheguard.Message{Kind: cacheguard.MessageChanged, Load: token})
		m.grants = append(m.grants, g)
		const format = "claimed with number %d, and left %q"
		return fmt.Sprintf(format, g.Number, g.Left), fmt.Sprintf(format, number, m.slot.Frame), err
	case 11:
		mark := []byte(fmt.Sprintf("mark %03d", m.IntN(1000)))
		said("mark %s", mark)
		err := m.store.MarkStale(ctx, []cacheguard.Key{m.key}, markAt+1, mark)
		m.tells(m.slot.MarkStale(present, markAt+1, string(mark)),
			cacheguard.Message{Kind: cacheguard.MessageChanged})
		return nil, nil, err
	case 12:
		said("invalidate")
		err := m.store.Invalidate(ctx, []cacheguard.Key{m.key})
		m.tells(m.slot.Invalidate(), cacheguard.Message{Kind: cacheguard.MessageChanged})
		return nil, nil, err
	default:
		return nil, nil, m.ends(ctx, said)
	}
}

func (m *mirror) ask(
	ctx context.Context, said func(string, ...any),
) (redisSays, slotSays any, err error) {
	ask := cacheguard.LeaseAsk{Token: m.token(), TTL: m.hours(), Wait: m.IntN(2) == 0}
	if m.IntN(2) == 0 {
		ask.Seen = []byte(protocol.LoadOf(m.slot.Frame))
		if len(ask.Seen) == 0 || m.IntN(4) == 0 {
			seen := m.token()
			ask.Seen = seen[:]
		}
	}
	if m.IntN(2) == 0 {
		ask.Awaited = m.token()
	}
	said("lease %s, seen %s, awaited %s, wait %v", ask.Token[:], ask.Seen, ask.Awaited[:], ask.Wait)
	got, err := m.store.Lease(ctx, m.key, ask)
	if err != nil {
		return nil, nil, err
	}
	r := m.slot.Ask(present, protocol.Question{
		Token: protocol.ID(ask.Token), Number: got.Grant.Number, TTL: ask.TTL,
		Seen:    string(ask.Seen),
		Awaited: protocol.ID(ask.Awaited), Inbox: map[bool]uint64{true: 1}[ask.Wait],
	})
	if got.State == cacheguard.LeaseGranted {
		m.grants = append(m.grants, got.Grant)
	}
	state := map[protocol.Kind]cacheguard.LeaseState{
		protocol.Granted: cacheguard.LeaseGranted, protocol.Held: cacheguard.LeaseHeld,
		protocol.Value: cacheguard.LeaseValue, protocol.Outcome: cacheguard.LeaseOutcome,
	}[r.Kind]
	failures := r.Ending.Failures
	if r.Kind == protocol.Outcome { // the record keeps it to itself
		failures, r.Ending.Failures = 0, 0
	}
	const format = "%v: number %d, of %s for %d quarters of an hour, %q, %v %q %q %q, after %d failures"
	o, e := got.Outcome, r.Ending
	if r.Kind == protocol.Granted {
		e = protocol.Ending{}
	}
	return fmt.Sprintf(format, got.State, got.Grant.Number, got.Holder[:], quarters(got.Remaining),
			got.Frame,
			uint8(o.Kind), o.Text, o.Frame, o.Note, got.Failures),
		fmt.Sprintf(format, state, r.Number, r.Load[:], quarters(r.Left), r.Frame, e.Kind, e.Text,
			e.Frame, e.Note, failures), nil
}

// quarters rounds a duration to quarters of an hour, because shorter times are what the steps
// themselves take.
func quarters(d time.Duration) int { return int((d + 5*time.Minute) / (15 * time.Minute)) }

func (m *mirror) conclude(
	ctx context.Context, said func(string, ...any),
) (redisSays, slotSays any, err error) {
	g := m.grant()
	o := cacheguard.Outcome{
		Kind: cacheguard.OutcomeKind(1 + m.IntN(3)), Failures: m.IntN(5), Drop: m.IntN(3) == 0,
	}
	if o.Kind == cacheguard.OutcomeUnstored {
		o.Frame = []byte(m.frame(g.Token))
	} else {
		o.Text, o.Note = fmt.Sprintf("text:%d", m.IntN(1000)), []byte("note")[:m.IntN(2)*4]
	}
	keep, backoff := 3*time.Hour, time.Duration(m.IntN(3))*time.Hour
	if m.IntN(4) == 0 {
		keep = 0
	}
	said("conclude %s %d, %v, drop %v, keep %v, back-off %v", g.Token[:], g.Number, o.Kind, o.Drop,
		keep, backoff)
	err = m.store.Conclude(ctx, m.key, g, o, keep, backoff)
	e := protocol.Ending{
		Kind: uint8(o.Kind), Text: o.Text, Frame: string(o.Frame), Note: string(o.Note),
		Failures: o.Failures,
	}
	tells := m.slot.Conclude(present, protocol.ID(g.Token), g.Number, e, o.Drop, keep, backoff)
	o.Failures, o.Drop = 0, false
	m.tells(tells, cacheguard.Message{Kind: cacheguard.MessageOutcome, Load: g.Token, Outcome: o})
	return nil, nil, err
}

// ends removes an entry, as if it had expired or had been evicted.
func (m *mirror) ends(ctx context.Context, said func(string, ...any)) error {
	switch r := &m.slot.Record; m.IntN(5) {
	case 0:
		said("the value ends")
		m.slot.Frame, m.slot.Until = "", 0
		return m.other.Del(ctx, m.value).Err()
	case 1:
		said("the lease or the record ends")
		m.slot.Lease, m.slot.Record = protocol.Lease{}, protocol.Record{}
		return m.other.Del(ctx, m.lease).Err()
	case 2:
		said("those who wait are forgotten")
		m.slot.Waiters = protocol.Waiters{}
		return m.other.Del(ctx, m.waiters).Err()
	case 3:
		said("somebody else's value")
		m.slot.Frame, m.slot.Until = "something else than a frame"[:m.IntN(27)], present+time.Hour
		if m.slot.Frame == "" {
			m.slot.Until = 0
			return m.other.Del(ctx, m.value).Err()
		}
		return m.other.Set(ctx, m.value, m.slot.Frame, time.Hour).Err()
	default:
		if r.Until == 0 {
			return nil
		}
		said("the back-off ends")
		r.Backoff, r.Until = present, present+time.Hour
		return m.other.PExpire(ctx, m.lease, time.Hour).Err()
	}
}

// differ executes this number of steps and returns the first difference.
func (m *mirror) differ(ctx context.Context, steps int) error {
	for n := range steps {
		redisSays, slotSays, err := m.step(ctx)
		if err != nil {
			return err
		}
		if redisSays != slotSays {
			return fmt.Errorf("Redis says\n%v\nand the slot\n%v", redisSays, slotSays)
		}
		pipe := m.other.Pipeline()
		get, pttl := pipe.Get(ctx, m.value), pipe.PTTL(ctx, m.value)
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		f := get.Val()
		if n%10 == 0 { // the store's read is one more trip
			read, _, err := m.store.Get(ctx, m.key, nil)
			if err != nil {
				return err
			}
			f = string(read)
		}
		if f != m.slot.Frame {
			return fmt.Errorf("Redis has the value\n%q\nand the slot\n%q", f, m.slot.Frame)
		}
		// If left is below zero, there is no entry, or it has no end.
		left := pttl.Val()
		if here := max(m.slot.Until-present, 0); quarters(left) != quarters(here) {
			return fmt.Errorf("Redis has the value for %v\nand the slot for %v", left, here)
		}
	}
	if err := m.store.Release(ctx, m.key, mirrorID(0)); err != nil { // there is no lease
		return err
	}
	return m.told(ctx)
}

// told compares the messages, up to one further change.
func (m *mirror) told(ctx context.Context) error {
	last := mirrorID(99)
	if _, err := m.store.Claim(ctx, m.key, last, time.Hour); err != nil {
		return err
	}
	for began := time.Now(); ; {
		m.mu.Lock()
		got := slices.Clone(m.got)
		m.mu.Unlock()
		if n := len(got); n > 0 && got[n-1].Load == last {
			if a, b := inWords(got[:n-1]), inWords(m.want); a != b {
				return fmt.Errorf("Redis told\n%s\nand the slot\n%s", a, b)
			}
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("after %v there are %d messages of %d", patience, len(got),
				len(m.want)+1)
		}
		<-time.After(100 * time.Microsecond)
	}
}

func inWords(all []cacheguard.Message) string {
	var b strings.Builder
	for _, m := range all {
		o := m.Outcome
		fmt.Fprintf(&b, "  %d of %s: %q, %d %q %q %q\n", m.Kind, m.Load[:], m.Frame, o.Kind, o.Text,
			o.Frame, o.Note)
	}
	return b.String()
}

// compare runs random steps of mirrors, in a fleet with this number of other listeners, and returns
// the first difference. On a slow machine it compares fewer sequences of the unbroken scripts,
// except in a soak test.
func compare(
	t *testing.T, addr string, others int, script, old, broken string, sequences int,
) error {
	t.Helper()
	rdb := newClient(t, addr)
	if broken != "" {
		if strings.Count(script, old) != 1 {
			t.Fatalf("the script has %q %d times, want once", old, strings.Count(script, old))
		}
		sum := sha1.Sum([]byte(script))
		rdb.AddHook(instead{hex.EncodeToString(sum[:]), strings.Replace(script, old, broken, 1)})
	}
	prefix := newPrefix()
	store := newStore(t, rdb, redisstore.Options{Prefix: prefix, OpTimeout: patience})
	other := newClient(t, addr)
	for range others {
		listener := other.Subscribe(t.Context(), redisstore.CacheChannel(prefix, "mirror"))
		_, err := listener.Receive(t.Context())
		must(t, err)
		defer listener.Close()
	}
	var now *mirror
	var mu sync.Mutex
	stop := store.Listen("mirror", func(message cacheguard.Message) {
		mu.Lock()
		m := now
		mu.Unlock()
		if m != nil && message.Key == m.key.Key && message.Kind != cacheguard.MessageRestored {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.got = append(m.got, message)
		}
	})
	defer stop()
	must(t, store.Warm(t.Context()))
	for began := time.Now(); !store.Listening(); <-time.After(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("no messages arrive")
		}
	}
	began := time.Now()
	for seed := range uint64(sequences) {
		if broken == "" && seed >= 20 && time.Since(began) > 2*time.Minute && !redistest.Soak() {
			t.Logf("%d sequences of %d", seed, sequences)
			break
		}
		k := cacheguard.Key{Cache: "mirror", Key: fmt.Sprint(seed)}
		m := &mirror{
			Rand: rand.New(rand.NewPCG(seed, 0)), store: store, other: other, key: k,
			names: names{
				redisstore.ValueName(prefix, k), redisstore.LeaseName(prefix, k),
				redisstore.WaitersName(prefix, k),
			},
		}
		mu.Lock()
		now = m
		mu.Unlock()
		if err := m.differ(t.Context(), 60); err != nil {
			return fmt.Errorf("seed %d, after\n  %s\n%w", seed, strings.Join(m.path, "\n  "), err)
		}
	}
	return nil
}

// instead is a client's hook that runs another script.
type instead struct{ sum, text string }

func (i instead) change(cmd redis.Cmder) {
	if args := cmd.Args(); len(args) > 2 && args[0] == "evalsha" && args[1] == i.sum {
		args[0], args[1] = "eval", i.text
	}
}

func (i instead) DialHook(next redis.DialHook) redis.DialHook { return next }

func (i instead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		i.change(cmd)
		return next(ctx, cmd)
	}
}

func (i instead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			i.change(cmd)
		}
		return next(ctx, cmds)
	}
}

// TestSlotIsRedis shows that the scripts do the same as the model of the store that the protocol's
// explorer uses.
func TestSlotIsRedis(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	// Waiting processes get a message for all, or a message in their inbox.
	for _, others := range []int{0, 9} {
		if err := compare(t, addr, others, "", "", "", 200); err != nil {
			t.Errorf("with %d others: %v", others, err)
		}
	}
}

// TestBrokenScriptsDiffer breaks scripts in ways that no model of the protocol would notice.
func TestBrokenScriptsDiffer(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	for _, c := range []struct{ name, script, old, broken string }{
		{
			"a value's id is compared but for its last byte", redisstore.LeaseScript,
			"id ~= seen then", "string.sub(id, 1, -2) ~= string.sub(seen, 1, -2) then",
		},
		{"no back-off answers everybody", redisstore.LeaseScript, "rest > 0 or", "rest >= 0 or"},
		{
			"who waits is not noted beside a value", redisstore.LeaseScript, "ARGV[5] ~= '' then",
			"ARGV[5] ~= '' and seen == '' then",
		},
		{"a fill tells everybody always", redisstore.FillScript, "waiters and both[2]", "'*'"},
		{"a fill tells nobody", redisstore.FillScript, "waiters and both[2]", "nil"},
		{
			"a fill leaves those who were told", redisstore.FillScript,
			"'DEL', KEYS[2], waiters or KEYS[2]", "'DEL', KEYS[2]",
		},
		{"a large frame is told", redisstore.FillScript, "#ARGV[2] <= tonumber(ARGV[5])", "true"},
		{
			"a conclusion leaves what it drops", redisstore.ConcludeScript, "ARGV[4] == '1'",
			"ARGV[4] == 'yes'",
		},
		{
			"a conclusion leaves those who were told", redisstore.ConcludeScript, "if waiters then",
			"if not waiters then",
		},
		{
			"the next load forgets who waits", redisstore.LeaseScript, "if waiters then -- whose",
			"redis.call('DEL', KEYS[5]) if false then -- whose",
		},
		{
			"an inbox is noted twice", redisstore.LeaseScript,
			"string.find(waiters, ARGV[5], 1, true)", "false",
		},
		{
			"an invalidation leaves those who were told", redisstore.InvalidateScript,
			"unpack(KEYS)", "unpack(KEYS, 1, 4)",
		},
		{
			"a mark leaves those who were told", redisstore.MarkScript,
			"unpack(KEYS, versions + 1)", "KEYS[3], KEYS[4]",
		},
		{
			"a claim leaves those who were told", redisstore.ClaimScript, "KEYS[6] or KEYS[3]",
			"KEYS[3]",
		},
		{"a claim leaves tags for ever", redisstore.ClaimScript, "left, 'KEEPTTL'", "left"},
		{
			"a claim leaves the id", redisstore.ClaimScript, "string.byte(head, 3) + 128",
			"string.byte(head, 3)",
		},
		{
			"a claim leaves the note", redisstore.ClaimScript,
			"2 + (string.byte(extension, 1, 1) or 255)", "2",
		},
		{
			"a claim leaves tags of none", redisstore.ClaimScript, "if tags == '' then",
			"if false then",
		},
		{
			"a claim leaves what came first alone", redisstore.ClaimScript,
			"return redis.call('GETRANGE', value, 0, 16463)", "return nil",
		},
		{
			"a claim removes what it leaves", redisstore.ClaimScript, "left and KEYS[3] or KEYS[1]",
			"KEYS[1]",
		},
		{
			"a claim leaves tags of anything", redisstore.ClaimScript,
			"or string.byte(head) ~= 1 then", "then",
		},
		{
			"a renewal takes any grant of the token", redisstore.RenewScript,
			"string.sub(lease, 2) == ARGV[1]",
			"string.sub(lease, 2, 33) == string.sub(ARGV[1], 1, 32)",
		},
		{
			"a copy of a claim has a new number", redisstore.ClaimScript, "if lease and string",
			"if false and string",
		},
		{
			"a second mark counts", redisstore.MarkScript, "there == string.rep('\\0', #ARGV[5])",
			"#there == #ARGV[5]",
		},
		{"a release tells nobody", redisstore.ReleaseScript, "KEYS[2] and both[2]", "nil"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := compare(t, addr, 9, c.script, c.old, c.broken, 1000)
			if err == nil {
				t.Fatal("no difference is found")
			}
			if text := err.Error(); !bytes.Contains([]byte(text), []byte("and the slot")) {
				t.Errorf("it is found by another difference: %v", err)
			}
		})
	}
}
