package redisstore_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// inspected returns the result of Inspect, and checks that its texts can be shown to anybody.
func inspected(t *testing.T, s *redisstore.Store, key string) redisstore.Inspection {
	t.Helper()
	i, err := s.Inspect(t.Context(), "test", key)
	must(t, err)
	presentable(t, i)
	return i
}

// presentable checks that a report has no control sequences for a terminal, and that it can be
// written as JSON.
func presentable(t *testing.T, report fmt.Stringer) {
	t.Helper()
	text := report.String()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("not for people: %q", text)
	}
	if b, err := json.Marshal(report); err != nil || !json.Valid(b) {
		t.Errorf("no JSON: %v", err)
	}
}

// says checks that a report has these words, with any number of spaces between them.
func says(t *testing.T, report fmt.Stringer, words ...string) {
	t.Helper()
	text := strings.Join(strings.Fields(report.String()), " ")
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("it doesn't say %q:\n%s", w, report)
		}
	}
}

// made returns the header of a valid value that was made some time ago.
func made(ago time.Duration) frame.Header {
	now := time.Now().Add(-ago)
	return frame.Header{
		ID: [16]byte{1, 2, 3}, Created: now, Soft: time.Hour, Revalidate: time.Hour,
		IfError: 3 * time.Hour,
		Took:    120 * time.Millisecond, Codec: frame.Fingerprint("raw", 0), Stamp: now.UnixMicro(),
	}
}

// since makes the test's cache as old as ago.
func since(t *testing.T, rdb redis.UniversalClient, prefix string, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago).UnixMicro()
	must(t,
		rdb.ZAdd(t.Context(), redisstore.GenerationsName(prefix, "test"),
			redis.Z{Score: float64(at)}).Err())
	must(t, rdb.Set(t.Context(), redisstore.WholeName(prefix, "test"), at, 0).Err())
}

func tagsOf(t *testing.T, tags ...string) frame.Tags {
	t.Helper()
	list, err := frame.MakeTags(tags)
	must(t, err)
	return list
}

// The report says for each kind of entry what it means for callers.
func TestInspect(t *testing.T) {
	t.Parallel()
	r := newReplica(t, redistest.Start(t).Addr(), newPrefix())
	ctx, store := t.Context(), r.store.Store
	since(t, r.rdb, r.prefix, 100*time.Hour)
	must(t, r.rdb.ZAdd(ctx, redisstore.GenerationsName(r.prefix, "test"),
		redis.Z{Score: float64(time.Now().Add(-61 * time.Second).UnixMicro()), Member: "late"},
		redis.Z{Score: float64(time.Now().Add(-61 * time.Second).UnixMicro()), Member: "\x00late"},
		redis.Z{
			Score: float64(time.Now().Add(-50 * time.Hour).UnixMicro()), Member: "early",
		}).Err())
	with := func(h frame.Header, change func(*frame.Header)) []byte {
		change(&h)
		body := []byte("body")
		if h.Null {
			body = nil
		}
		return frame.New(h, body)
	}
	nothing := func(*frame.Header) {}
	flipped := with(made(0), nothing)
	flipped[len(flipped)-1] ^= 1
	// What is said in minutes is true for almost a minute, which is enough for a slow machine.
	for name, test := range map[string]struct {
		value []byte
		state redisstore.State
		says  []string
	}{
		"fresh": {with(made(61*time.Second), nothing), redisstore.StateFresh, []string{
			"so fresh: a caller gets it, for 58m",
			"version 1, flags 00 (a value), made by load 01020300", "codec raw, fingerprint",
			"by a load that took 120ms", "fresh for 1h0m0s, 58m", "removed never", "lease none"}},
		"not there": {with(made(61*time.Second), func(h *frame.Header) { h.Null = true }),
			redisstore.StateFresh, []string{
				"a caller is told that it does not exist, for 58m", "flags 01"}},
		"stale": {with(made(90*time.Minute+time.Second), nothing), redisstore.StateStale,
			[]string{
				"at once and one process refreshes it, for 29m", "over for 30m",
				"served when a load fails for 3h0m0s, 2h2"}},
		"stale on error": {with(made(150*time.Minute+30*time.Second), nothing),
			redisstore.StateOnError, []string{
				"a caller gets it if a load fails, for 1h2",
				"no load is under way: the next caller begins one"}},
		"expired": {
			with(made(5*time.Hour), nothing), redisstore.StateExpired,
			[]string{"expired: only the next load sees it"},
		},
		"from the future": {
			with(made(-time.Hour), nothing), redisstore.StateExpired,
			[]string{"made in the future"},
		},
		"marked": {with(made(61*time.Second), func(h *frame.Header) {
			h.Marked = time.Now().Add(-time.Second)
		}), redisstore.StateStale, []string{
			"marked stale since", "for 59m"}},
		"unshared": {
			with(made(61*time.Second), func(h *frame.Header) { h.Unshared = true }),
			redisstore.StateUnshared,
			[]string{"each caller loads for itself, for 58m", "flags 02 (not to be shared)"},
		},
		"unshared, over": {
			with(made(2*time.Hour), func(h *frame.Header) { h.Unshared = true }),
			redisstore.StateExpired, []string{"as if nothing were there"},
		},
		"tag": {with(made(2*time.Minute), func(h *frame.Header) {
			h.Tags = tagsOf(t, "early", "late")
		}), redisstore.StateInvalid, []string{
			`invalid: its tag "late" was invalidated after its load began`,
			`tag "early" invalidated at`, `: valid tag "late"`, ": invalid"}},
		"soft tag": {with(made(2*time.Minute), func(h *frame.Header) {
			h.Tags = tagsOf(t, "\x00late")
		}), redisstore.StateStale, []string{
			"for 58m", `tag "late"`, "a soft one: the value is stale since then"}},
		"tag that stands": {with(made(time.Second), func(h *frame.Header) {
			h.Tags = tagsOf(t, "early", "late", "none")
		}), redisstore.StateFresh, []string{
			`tag "none" never invalidated: valid`}},
		"whole cache": {with(made(101*time.Hour), func(h *frame.Header) {
			h.Soft = 1000 * time.Hour
		}), redisstore.StateInvalid, []string{
			"invalid: its cache was invalidated after its load began"}},
		"stamp ahead": {with(made(0), func(h *frame.Header) {
			h.Stamp += 48 * time.Hour.Microseconds()
		}), redisstore.StateInvalid, []string{"a stamp from the future"}},
		"remnant": {frame.Remnant(with(made(0), func(h *frame.Header) {
			h.Tags = tagsOf(t, "a", "\x00b")
		})), redisstore.StateRemnant, []string{
			"a writer has removed the value", `tag "a" kept`, `tag "b" kept, a soft one`}},
		"flipped": {
			flipped, redisstore.StateUnreadable, []string{
				"no value (frame has a wrong checksum)", "version 1, flags 00, made by load 010203",
			},
		},
		"another type": {with(made(0), func(h *frame.Header) {
			h.Codec = frame.Fingerprint("json", 4)
		}), redisstore.StateUnreadable, []string{
			"no value (it was made for Options.Version 4, and asked for is 0): the next load overwrites them",
			"made by load 010203"}},
		"not there, of another type": {with(made(0), func(h *frame.Header) {
			h.Null, h.Codec = true, frame.Fingerprint("json", 4)
		}),
			redisstore.StateFresh, []string{"a caller is told that it does not exist"}},
		"another version": {
			append([]byte{7, 0}, make([]byte, 100)...), redisstore.StateUnreadable,
			[]string{"not an entry of cacheguard but bytes that begin with 07000000"},
		},
		"cut off early": {
			[]byte("\x01"), redisstore.StateUnreadable, []string{
				"the stored bytes are no value (frame is shorter than its header)", "frame none",
			},
		},
		"cut off": {
			with(made(0), nothing)[:40], redisstore.StateUnreadable,
			[]string{"no value (frame is shorter than its header)", "made by load 010203"},
		},
		"later flags": {append([]byte{1, 0x80}, with(made(0), nothing)[2:]...),
			redisstore.StateUnreadable, []string{
				"no value (frame has unknown flags)", "flags 80, made by load 010203"}},
		"foreign JSON": {[]byte(`{"id": 1, "name": "a lamp of another program"}`),
			redisstore.StateUnreadable, []string{
				"the stored bytes are not an entry of cacheguard but JSON: another program has written it, and the next load overwrites it",
				"frame none"}},
		"foreign text": {
			[]byte("neither frame nor JSON"), redisstore.StateUnreadable,
			[]string{"not an entry of cacheguard but text:"},
		},
		"number": {
			[]byte("17"), redisstore.StateUnreadable,
			[]string{"not an entry of cacheguard but a number:"},
		},
		"gzip": {
			[]byte("\x1f\x8b\x08 and so on"), redisstore.StateUnreadable,
			[]string{"not an entry of cacheguard but gzip:"},
		},
		"empty": {
			[]byte{}, redisstore.StateUnreadable,
			[]string{"not an entry of cacheguard but an empty string:"},
		},
		"nothing": {
			nil, redisstore.StateAbsent, []string{
				"nothing is stored", "value none", "lease none", "the next caller begins one",
			},
		},
		"unnamed codec": {
			with(made(0), func(h *frame.Header) { h.Codec = 0 }), redisstore.StateFresh,
			[]string{"one without a name"},
		},
		"foreign codec": {
			with(made(0), func(h *frame.Header) { h.Codec = 7 }), redisstore.StateFresh,
			[]string{"none of this module's, fingerprint 00000007"},
		},
		"note": {
			with(made(0), func(h *frame.Header) { h.Note = []byte("\x1b") }), redisstore.StateFresh,
			[]string{"note 1b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.value != nil {
				must(t, r.rdb.Set(ctx, r.valueName(name), test.value, 0).Err())
			}
			i := inspected(t, store, name)
			if i.State != test.state {
				t.Errorf("%s; want %s\n%s", i.State, test.state, i)
			}
			if i.Cache != "test" || i.Key != name || i.Name != r.valueName(name) ||
				time.Until(i.Now).Abs() > time.Minute {
				t.Errorf("%+v", i)
			}
			says(t, i, test.says...)
			if ours := i.Value == nil ||
				!strings.HasPrefix(i.Value.Err, "not an entry"); !ours &&
				(i.Value.Load != "" || strings.Contains(i.String(), "made by load")) {
				t.Errorf("of what is not cacheguard's it names a load:\n%s", i)
			}
		})
	}

	must(t, r.rdb.RPush(ctx, r.valueName("list"), "a").Err())
	must(t, r.rdb.Set(ctx, r.valueName("list")+":v2", "a", time.Hour).Err())
	i := inspected(t, store, "list")
	says(t, i, "not an entry of cacheguard but a list:",
		"a value of format version 2, of a later program")
	if i.State != redisstore.StateUnreadable {
		t.Error(i)
	}
	long := strings.Repeat("k", 600)
	must(t, r.rdb.Set(ctx, r.valueName(hashed(long)), with(made(0), nothing), 0).Err())
	if i := inspected(t, store, long); i.State != redisstore.StateFresh {
		t.Errorf("a key that stands as its hash:\n%s", i)
	}

	must(t, r.rdb.Del(ctx, redisstore.WholeName(r.prefix, "test")).Err())
	if i := inspected(t, store, "fresh"); i.State != redisstore.StateFresh {
		t.Errorf("without what stands alone of the whole, the set has it:\n%s", i)
	}
	must(t, r.rdb.Del(ctx, redisstore.GenerationsName(r.prefix, "test")).Err())
	i = inspected(t, store, "fresh")
	says(t, i, "the time at which its cache was last invalidated is lost", "cache not known since when: invalid")
	if i.State != redisstore.StateInvalid {
		t.Error(i)
	}
}

// The report of a lease names its holder and the waiting processes. The report of a record says how
// the load ended.
func TestInspectLeases(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newParish(t, server)
	s := p.leader.Store
	look := func() redisstore.Inspection { return inspected(t, s, testKey.Key) }

	began := time.Now()
	most := func(d time.Duration) time.Duration { return d - min(wallclock.SetSince(began), 0) }
	g := p.leader.ask(t, 1, cacheguard.LeaseGranted)
	i := look()
	if l := i.Lease; l == nil || l.Load != g.Token.String() || l.Granted.UnixMicro() != g.Number ||
		l.Outcome != nil || !l.Inboxes || l.Awaited ||
		l.Left <= 0 || l.Left > most(time.Hour) || i.Waiters != nil {
		t.Errorf("%+v", i.Lease)
	}
	says(t, i, "nothing is stored a load is under way: calls that need the value wait for it")
	p.first.ask(t, 2, cacheguard.LeaseHeld)
	i = look()
	if w := i.Waiters; w == nil || w.All || len(w.Inboxes) != 1 || w.Processes < 5 ||
		!strings.HasSuffix(p.first.InboxChannel(), w.Inboxes[0]) {
		t.Errorf("%+v", i.Waiters)
	}
	says(t, i, "waiting 1 processes of")
	o := newOlder(t, server.Addr(), p.prefix)
	o.ask(load(9))
	if i = look(); !i.Lease.Awaited {
		t.Errorf("an older program waits:\n%s", i)
	}

	failed := cacheguard.Outcome{
		Kind: cacheguard.OutcomeFailed, Text: "no \x1b[31m answer\x000001020304",
		Note: []byte("note"), Failures: 3,
	}
	must(t, s.Conclude(t.Context(), testKey, g, failed, time.Hour, time.Minute))
	i = look()
	if l := i.Lease; l.Load != g.Token.String() || l.Outcome == nil || l.Outcome.Kind != "failed" ||
		l.Outcome.Text != "no \x1b[31m answer" ||
		l.Outcome.Failures != 3 || l.Outcome.Backoff != time.Minute ||
		l.Outcome.BackoffLeft <= 30*time.Second || l.Outcome.BackoffLeft > most(time.Minute) {
		t.Errorf("%+v, %+v", i.Lease, i.Lease.Outcome)
	}
	says(t, i, "the last load has failed: calls that would load get its error, for",
		`error "no \x1b[31m answer"`, "3 in a row")

	value, lease := redisstore.ValueName(p.prefix, testKey), redisstore.LeaseName(p.prefix, testKey)
	must(t, p.other.PExpire(t.Context(), lease, 50*time.Minute).Err()) // ten minutes later
	says(t, look(), "the last load has failed, and the next may begin", "back-off 1m0s, 0s left")
	must(t, p.other.Del(t.Context(), lease).Err())

	g = p.leader.ask(t, 3, cacheguard.LeaseGranted)
	must(t,
		s.Conclude(t.Context(), testKey, g,
			cacheguard.Outcome{Kind: cacheguard.OutcomeUnstored, Frame: make([]byte, 700)},
			time.Hour, time.Minute))
	says(t, look(), "has left no value: no other load gets the lease, for", "unstored",
		"result 700 bytes")
	must(t, p.other.Set(t.Context(), lease, "!z"+g.Token.String()+":1:1:1:what", time.Hour).Err())
	says(t, look(), "of an unknown kind")

	must(t, p.other.Set(t.Context(), lease, "garbage \x1b", 0).Err())
	must(t,
		p.other.Set(t.Context(), redisstore.WaitersName(p.prefix, testKey), "garbage \x1b",
			0).Err())
	says(t, look(), "neither a lease nor a record", "not a list of processes that wait")
	must(t, p.other.Set(t.Context(), lease, "-"+strings.Repeat("1", 48), 0).Err())
	must(t,
		p.other.Set(t.Context(), redisstore.WaitersName(p.prefix, testKey), "*", time.Hour).Err())
	says(t, look(), "it has no end", "all processes that have the cache open")
	must(t, p.other.Set(t.Context(), value, frame.New(made(0), nil), time.Hour).Err())
}

// The inspector's report of a value agrees with the behaviour of a cache.
func TestInspectAgreesWithCaches(t *testing.T) {
	t.Parallel()
	errAway := errors.New("origin is away")
	r := newReplica(t, redistest.Start(t).Addr(), newPrefix())
	ctx, store := t.Context(), r.store.Store
	random := rand.New(rand.NewPCG(11, 12))
	hours := func(most int) time.Duration { return time.Duration(random.IntN(most)) * time.Hour }
	past := func(most int) time.Time { return time.Now().Add(-30*time.Minute - hours(most)) }
	since(t, r.rdb, r.prefix, 20*time.Hour+30*time.Minute)
	var tags []string
	for n := range 12 {
		tag := fmt.Sprint("tag ", n)
		if n%2 == 0 {
			tag = "\x00" + tag
		}
		tags = append(tags, tag)
		if n < 9 {
			must(t,
				r.rdb.ZAdd(ctx, redisstore.GenerationsName(r.prefix, "test"),
					redis.Z{Score: float64(past(24).UnixMicro()), Member: tag}).Err())
		}
	}
	states := make(map[redisstore.State]int)
	for n := range 600 {
		key := fmt.Sprint(n)
		h := made(0)
		h.Created = past(24)
		h.Stamp = h.Created.UnixMicro()
		h.Soft, h.Revalidate, h.IfError = time.Minute+hours(40), hours(20), hours(40)
		h.Null, h.Unshared = random.IntN(6) == 0, random.IntN(12) == 0
		if random.IntN(8) == 0 {
			h.Marked = past(24)
		}
		if random.IntN(30) == 0 {
			h.Codec++
		}
		if random.IntN(30) == 0 {
			h.Stamp += 100 * time.Hour.Microseconds()
		}
		if random.IntN(30) == 0 {
			h.Created = h.Created.Add(100 * time.Hour)
		}
		random.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
		h.Tags = tagsOf(t, tags[:max(0, random.IntN(6)-2)]...)
		body := []byte("v")
		if h.Null {
			body = nil
		}
		f := frame.New(h, body)
		switch random.IntN(30) {
		case 0:
			f = f[:len(f)-1]
		case 1:
			if left := frame.Remnant(f); left != nil {
				f = left
			}
		}
		must(t, r.rdb.Set(ctx, r.valueName(key), f, 0).Err())

		i := inspected(t, store, key)
		states[i.State]++
		peeked, err := r.cache.Peek(ctx, key)
		must(t, err)
		got, err := r.cache.GetResult(ctx, key, func(context.Context) (string, error) {
			return "", errAway
		})
		want, fails := cacheguard.StatusMiss, true // the status of Peek, and whether Get fails
		switch i.State {
		case redisstore.StateFresh:
			want, fails = cacheguard.StatusHit, false
		case redisstore.StateStale, redisstore.StateOnError:
			want, fails = cacheguard.StatusStale, false
		case redisstore.StateExpired:
			want = cacheguard.StatusStale
		}
		if h.Unshared {
			want = cacheguard.StatusMiss
		}
		// The inspector can't know other codecs.
		if h.Codec != frame.Fingerprint("raw", 0) && !h.Null {
			want, fails = cacheguard.StatusMiss, true
		}
		if peeked.Status != want {
			t.Errorf("Peek says %v; want %v\n%s", peeked.Status, want, i)
		}
		if failed := errors.Is(err, errAway); failed != fails ||
			!fails && (got.Status != want || got.NotFound != i.Value.NotFound) {
			t.Errorf("Get says %+v, %v\n%s", got, err, i)
		}
		if !fails &&
			((peeked.FreshFor-i.Value.FreshLeft).Abs() > time.Minute ||
				(peeked.Age-i.Value.Age).Abs() > time.Minute) {
			t.Errorf("Peek says fresh for %v and of age %v\n%s", peeked.FreshFor, peeked.Age, i)
		}
	}
	if len(states) < 8 {
		t.Errorf("of the states came %v", states)
	}
}

// The lease script reads the record of a load in Lua, and the inspector reads it in Go. Both must
// read the same.
func TestInspectAgreesWithTheLeaseScript(t *testing.T) {
	t.Parallel()
	r := newReplica(t, redistest.Start(t).Addr(), newPrefix())
	ctx, store := t.Context(), r.store.Store
	random := rand.New(rand.NewPCG(13, 14))
	token := hex.EncodeToString([]byte("0123456789abcdef"))
	var all []string
	for _, kind := range "fupzF1" {
		for _, numbers := range []string{
			"3600000:3600000:1", "3600000:1:2", "1:999999999999999:3", "3600000:3600000:1000000000",
			"3600000:9999999999999999:1", "1:1:0", ":1:1",
		} {
			for _, payload := range []string{
				"", "\x00", "\x00text\n:\xff", "\x04notetext", "\xfftoo short", "x",
			} {
				all = append(all, fmt.Sprintf("!%c%s:%s:%s", kind, token, numbers, payload))
			}
		}
	}
	all = append(all, "-"+token+"1700000000000000", "+"+strings.ToUpper(token)+"1700000000000000",
		"-"+token+"170000000000000", "-"+token+"abcdefabcdefabcd", "!f:1:1:1:")
	for _, whole := range slices.Clone(all) {
		for range 8 {
			b := []byte(whole)
			switch at := random.IntN(len(b)); random.IntN(3) {
			case 0:
				b[at] ^= 1 << random.IntN(8)
			case 1:
				b = b[:at]
			case 2:
				b = slices.Insert(b, at, "0a:\n\xff"[random.IntN(5)])
			}
			all = append(all, string(b))
		}
	}
	seen := make(map[string]int)
	for n, standing := range all {
		key := fmt.Sprint(n)
		must(t, r.rdb.Set(ctx, r.leaseName(key), standing, 50*time.Minute).Err())
		l := inspected(t, store, key).Lease
		ans, err := store.Lease(ctx, cacheguard.Key{Cache: "test", Key: key},
			cacheguard.LeaseAsk{Token: load(1), TTL: time.Second})
		must(t, err)
		want := cacheguard.LeaseGranted
		switch o := l.Outcome; {
		case l.Err != "":
		case o == nil:
			want = cacheguard.LeaseHeld
		case o.BackoffLeft > 0:
			want = cacheguard.LeaseOutcome
		}
		seen[fmt.Sprint(want)]++
		if ans.State != want {
			t.Errorf("%q: %d; want %d as of %+v", standing, ans.State, want, l)
			continue
		}
		if want != cacheguard.LeaseGranted && (ans.Remaining-lasts(l)).Abs() > time.Minute {
			t.Errorf("%q: %v left; want %v", standing, ans.Remaining, lasts(l))
		}
		if !ans.Holder.IsZero() && l.Load != ans.Holder.String() {
			t.Errorf("%q: load %s; want %s", standing, l.Load, ans.Holder)
		}
		switch o := l.Outcome; {
		case o == nil:
		case want == cacheguard.LeaseGranted && ans.Failures != min(o.Failures, 1<<20):
			t.Errorf("%q: %d failures; want %d", standing, o.Failures, ans.Failures)
		case want == cacheguard.LeaseOutcome:
			text, _ := frame.Unmark(ans.Outcome.Text)
			kinds := map[string]cacheguard.OutcomeKind{"failed": cacheguard.OutcomeFailed,
				"unstored": cacheguard.OutcomeUnstored,
				"unshared": cacheguard.OutcomeUnshared, "": cacheguard.OutcomeUnshared}
			if kinds[o.Kind] != ans.Outcome.Kind || o.Text != text ||
				o.Size != len(ans.Outcome.Frame) {
				t.Errorf("%q: %+v; want %+v", standing, o, ans.Outcome)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("of the answers came %v", seen)
	}
}

// lasts returns how long the entry under the name of a lease is valid.
func lasts(l *redisstore.InspectedLease) time.Duration {
	if l.Outcome != nil {
		return l.Outcome.BackoffLeft
	}
	return l.Left
}

// The report names every kind of garbage in Redis, and the inspector doesn't fail.
func TestInspectGarbage(t *testing.T) {
	t.Parallel()
	r := newReplica(t, redistest.Start(t).Addr(), newPrefix())
	ctx, store := t.Context(), r.store.Store
	h := made(0)
	h.Tags = tagsOf(t, "tag")
	values := garbageValues(frame.New(h, []byte("value")))
	for n, g := range slices.Concat(values, garbageLeases()) {
		k := cacheguard.Key{Cache: "test", Key: fmt.Sprint(n)}
		for _, name := range []string{
			r.valueName(k.Key), r.leaseName(k.Key), redisstore.WaitersName(r.prefix, k),
		} {
			must(t, g.put(ctx, r.rdb, name))
		}
		for _, name := range []string{
			redisstore.GenerationsName(r.prefix, "test"), redisstore.WholeName(r.prefix, "test"),
		} {
			if n%7 == 0 {
				must(t, r.rdb.Del(ctx, name).Err())
				must(t, g.put(ctx, r.rdb, name))
			}
		}
		inspected(t, store, k.Key)
	}
	scanned, err := store.Scan(ctx, "test", redisstore.ScanOptions{Pause: -1})
	must(t, err)
	presentable(t, scanned)
	if scanned.Values != len(values)+len(garbageLeases()) || !scanned.Whole {
		t.Errorf("%+v", scanned)
	}
}

// A user who may only read can inspect and scan. The data stays unchanged, to the last byte and
// millisecond.
func TestInspectOnlyReads(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newClient(t, server.Addr())
	r := newReplica(t, server.Addr(), "cg")
	ctx := t.Context()
	r.get(t, "k", newOrigin("v").load)
	must(t, r.cache.InvalidateTags(ctx, "tag"))
	must(t, r.cache.Close())
	must(t, r.store.Close()) // otherwise its subscription would send a PING now and then
	h := made(0)
	h.Tags = tagsOf(t, "tag", "other")
	must(t, admin.Set(ctx, r.valueName("tagged"), frame.New(h, []byte("v")), time.Hour).Err())
	must(t, admin.Set(ctx, r.leaseName("tagged"), "garbage", 0).Err())
	must(t, admin.Set(ctx, r.valueName("large"), make([]byte, 20_000), time.Hour).Err())
	// The generations of this cache are lost. Other steps would create them again.
	for key, f := range map[string][]byte{"lost": frame.New(h, nil)} {
		must(t,
			admin.Set(ctx, redisstore.ValueName("cg", cacheguard.Key{Cache: "lost", Key: key}), f,
				0).Err())
	}

	rdb := newInspector(t, admin)
	if err := rdb.Set(ctx, "cg:x", "y", 0).Err(); err == nil {
		t.Error("the inspector may write")
	}
	dump := func() map[string]string {
		all := make(map[string]string)
		names, err := admin.Keys(ctx, "*").Result()
		must(t, err)
		for _, name := range names {
			all[name], err = admin.Dump(ctx, name).Result()
			must(t, err)
			at, err := admin.PExpireTime(ctx, name).Result()
			must(t, err)
			all[name] += fmt.Sprint(" until ", at)
		}
		return all
	}
	before := dump()
	must(t, admin.Do(ctx, "ACL", "LOG", "RESET").Err())
	must(t, admin.ConfigResetStat(ctx).Err())
	s := newStore(t, rdb, redisstore.Options{Prefix: "cg", OpTimeout: patience})
	for _, key := range []string{"k", "tagged", "large", "none"} {
		inspected(t, s, key)
	}
	if i, err := s.Inspect(ctx, "lost", "lost"); err != nil || i.State != redisstore.StateInvalid {
		t.Errorf("%v, %v", i, err)
	}
	for cache, values := range map[string]int{"test": 3, "lost": 1} {
		if scanned, err := s.Scan(ctx, cache, redisstore.ScanOptions{}); err != nil ||
			scanned.Values != values {
			t.Errorf("%+v, %v", scanned, err)
		}
	}
	stats, err := admin.Info(ctx, "commandstats").Result()
	must(t, err)
	for _, found := range regexp.MustCompile(`cmdstat_([a-z|_-]+):calls=[0-9]+`).
		FindAllStringSubmatch(stats, -1) {
		if !slices.Contains(
			strings.Fields(
				"get pttl zmscore time multi exec scan getrange strlen hello config|resetstat acl|log client|setinfo client|maint_notifications"),
			found[1]) {
			t.Errorf("it sent %s", found[1])
		}
	}
	if after := dump(); !maps.Equal(before, after) {
		t.Errorf("it changed\n%q\ninto\n%q", before, after)
	}
	refused, err := admin.Do(ctx, "ACL", "LOG").Slice()
	must(t, err)
	for _, entry := range refused {
		// go-redis sends its name and accepts a refusal.
		if said := fmt.Sprint(entry); !strings.Contains(said, "client") {
			t.Errorf("something was refused: %s", said)
		}
	}

	// If a right is missing, the error names the right.
	for _, command := range []string{"get", "multi", "zmscore", "time"} {
		must(t, admin.Do(ctx, "ACL", "SETUSER", "inspector", "-"+command).Err())
		if _, err := s.Inspect(ctx, "test", "k"); err == nil ||
			!strings.Contains(err.Error(), "lacks +"+command) {
			t.Errorf("without %s: %v", command, err)
		}
		must(t, admin.Do(ctx, "ACL", "SETUSER", "inspector", "+"+command).Err())
	}
}

// newInspector makes a client for a user with exactly the rights that the documentation lists for
// an inspector.
func newInspector(t *testing.T, admin *redis.Client) *redis.Client {
	t.Helper()
	doc, err := os.ReadFile("../../docs/redis.md")
	must(t, err)
	found := regexp.MustCompile(`(?m)^ACL SETUSER inspector (.*)$`).FindSubmatch(doc)
	if found == nil {
		t.Fatal("docs/redis.md has no ACL rule for inspectors")
	}
	args := []any{"ACL", "SETUSER", "inspector"}
	for _, word := range bytes.Fields(found[1]) {
		args = append(args, string(word))
	}
	must(t, admin.Do(t.Context(), args...).Err())
	rdb := redis.NewClient(&redis.Options{
		Addr: admin.Options().Addr, Username: "inspector", Password: "secret",
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newStore(t, newClient(t, redistest.Start(t).Addr()), redisstore.Options{})
	for _, cache := range []string{"", "a{b", "}"} {
		if _, err := s.Inspect(ctx, cache, "k"); err == nil {
			t.Errorf("cache %q is inspected", cache)
		}
		if _, err := s.Scan(ctx, cache, redisstore.ScanOptions{}); err == nil {
			t.Errorf("cache %q is scanned", cache)
		}
	}
	node := newStore(t, newClient(t, redistest.StartCluster(t, 3, 0).Addrs()[0]),
		redisstore.Options{OpTimeout: patience})
	for n := range 20 {
		if _, err := node.Inspect(ctx, "test", fmt.Sprint(n)); err != nil {
			if !strings.Contains(err.Error(), "redis.NewClusterClient") {
				t.Error(err)
			}
			return
		}
	}
	t.Error("one node of three has all keys")
}

// In a cluster values, generations and the clock are on different nodes.
func TestInspectCluster(t *testing.T) {
	t.Parallel()
	rdb := clusterClient(t, redistest.StartCluster(t, 3, 0).Addrs()...)
	r := newReplica(t, "", newPrefix(), func(s *site) { s.rdb = rdb; s.store.OpTimeout = patience })
	ctx, store := t.Context(), r.store.Store
	since(t, rdb, r.prefix, time.Hour)
	must(t,
		rdb.ZAdd(ctx, redisstore.GenerationsName(r.prefix, "test"),
			redis.Z{Score: float64(time.Now().UnixMicro()), Member: "gone"}).Err())
	const all = 300
	for n := range all {
		h := made(time.Minute)
		if n%3 == 0 {
			h.Tags = tagsOf(t, "gone")
		}
		must(t,
			rdb.Set(ctx, r.valueName(fmt.Sprint(n)), frame.New(h, []byte("v")), time.Hour).Err())
	}
	for n := range 30 {
		want := redisstore.StateFresh
		if n%3 == 0 {
			want = redisstore.StateInvalid
		}
		if i := inspected(t, store, fmt.Sprint(n)); i.State != want {
			t.Errorf("%s; want %s", i, want)
		}
	}
	scanned, err := store.Scan(ctx, "test", redisstore.ScanOptions{})
	if err != nil || scanned.Values != all || scanned.States[redisstore.StateInvalid] != all/3 ||
		scanned.States[redisstore.StateFresh] != all-all/3 {
		t.Errorf("%v\n%s", err, scanned)
	}
}

// A server whose memory is full refuses transactions, but not reads.
func TestInspectWithFullMemory(t *testing.T) {
	t.Parallel()
	r := newReplica(t, redistest.Start(t).Addr(), newPrefix())
	r.get(t, "k", newOrigin("v").load).is(t, "v")
	must(t, r.rdb.ConfigSet(t.Context(), "maxmemory", "100kb").Err())
	found, err := r.store.Inspect(t.Context(), "test", "k")
	if err != nil || found.State != redisstore.StateFresh {
		t.Errorf("%v, %v", found.State, err)
	}
}
