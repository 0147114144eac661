package redisstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// ScanOptions limits a [Store.Scan]. The zero value of a field means its default.
type ScanOptions struct {
	Limit int           // most values to read. Default 100,000. Negative: no limit
	Count int           // how many names of any kind Redis scans in one step. Default 500
	Pause time.Duration // pause between two steps. Default 10 ms. Negative: no pause

	// Hash is the beginning of a key's SHA-256 in hexadecimal, as logs and the status page show it.
	// The keys whose hash begins with Hash are in Scanned.Found. Of a key of more than 512 bytes,
	// Redis has only the hash. If this hash begins with Hash, it is in Scanned.Hashed. Default: no
	// keys are looked for.
	Hash string
}

const (
	defaultScanLimit = 100_000
	defaultScanCount = 500
	defaultScanPause = 10 * time.Millisecond

	scanHead = 4 << 10 // bytes read of each value
	scanStep = 100     // names whose entries are read in one pipeline
)

// Scan counts the names of a cache in Redis, and reads the first 4 KiB of each value, or up to
// 17 KiB if its tags are longer. It scans all names in Redis, in steps with a pause between them,
// and changes nothing. In a cluster it scans one master after another, so it may miss data that
// moves between masters during the scan.
//
// If ctx ends before the scan does, Scan returns the counts so far and the error. In the
// repository, docs/redis.md lists the rights that Scan needs, under "Inspecting".
func (s *Store) Scan(ctx context.Context, cache string, opts ScanOptions) (Scanned, error) {
	if err := checkCache(cache); err != nil {
		return Scanned{}, err
	}
	opts.Limit, opts.Count = cmp.Or(opts.Limit, defaultScanLimit),
		cmp.Or(max(opts.Count, 0), defaultScanCount)
	opts.Pause = cmp.Or(opts.Pause, defaultScanPause)
	scan := &scanning{
		s: s, opts: opts, head: s.names.head(cache), seen: make(map[string]struct{}),
		Scanned: Scanned{
			Cache: cache, Hash: opts.Hash, States: make(map[State]int), Ages: newBuckets(),
			Lifetimes: newBuckets(),
		},
	}
	nodes, err := s.scanned(ctx)
	for _, node := range nodes {
		if err = scan.node(ctx, node); err != nil {
			break
		}
	}
	scan.Whole = err == nil
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err != nil && ctx.Err() == nil {
		err = s.blind(ctx, err)
	}
	return scan.Scanned, err
}

var errEnough = errors.New("redisstore: enough was looked at")

// scanned returns the clients of the nodes that share the names. A nil client stands for the only
// server.
func (s *Store) scanned(ctx context.Context) (nodes []*redis.Client, err error) {
	c, ok := s.link.Client().(*redis.ClusterClient)
	if !ok {
		return []*redis.Client{nil}, nil
	}
	return redislink.Aside(ctx, func(ctx context.Context) ([]*redis.Client, error) {
		var mu sync.Mutex // guards nodes
		err := c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, node)
			return nil
		})
		return nodes, err
	})
}

// scanning is a Scan under way.
type scanning struct {
	Scanned
	s    *Store
	opts ScanOptions
	head string              // beginning of the names of all values and leases of the cache
	seen map[string]struct{} // names so far, because Redis may return a name twice
}

// node scans the names of one node.
func (scan *scanning) node(ctx context.Context, node *redis.Client) error {
	type page struct {
		names []string
		next  uint64
	}
	for cursor := uint64(0); ; {
		p, err := twice(ctx, scan.s, func(
			ctx context.Context, rdb redis.UniversalClient,
		) (p page, err error) {
			if node != nil {
				rdb = node
			}
			p.names, p.next, err = rdb.Scan(ctx, cursor, globbed(scan.head)+"*",
				int64(scan.opts.Count)).Result()
			return p, err
		})
		if err != nil {
			return err
		}
		for some := range slices.Chunk(scan.fresh(p.names), scanStep) {
			if err := scan.look(ctx, some); err != nil {
				return err
			}
		}
		if cursor = p.next; cursor == 0 {
			return nil
		}
		if err := scan.pause(ctx); err != nil {
			return err
		}
	}
}

// globbed returns a pattern that matches only this text.
func globbed(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

func (scan *scanning) pause(ctx context.Context) error {
	if scan.opts.Pause < 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(scan.opts.Pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fresh returns those names of the cache that were not seen before. A proxy that ignores the
// pattern may return names that are not the cache's.
func (scan *scanning) fresh(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		if !strings.HasPrefix(name, scan.head) {
			return true
		}
		_, twice := scan.seen[name]
		scan.seen[name] = struct{}{}
		return twice
	})
}

// glance is the part of a name's entry that a scan reads.
type glance struct {
	name  string
	value bool // otherwise it is a lease
	b     []byte
	size  int64
	left  time.Duration
}

// look reads and counts the entries under these names.
func (scan *scanning) look(ctx context.Context, names []string) error {
	var all []glance
	values := 0
	for _, name := range names {
		scan.find(name)
		for _, version := range versions {
			switch value := "}" + version; {
			case strings.HasSuffix(name, value):
				if values++; scan.opts.Limit > 0 && scan.Values+values > scan.opts.Limit {
					continue
				}
				all = append(all, glance{name: name, value: true})
			case strings.HasSuffix(name, scan.s.names.lease(value)):
				all = append(all, glance{name: name})
			case strings.HasSuffix(name, scan.s.names.next(value)):
				scan.Newer++
			}
		}
	}
	if err := scan.read(ctx, all, scanHead); err != nil {
		return err
	}
	if err := scan.readTags(ctx, all); err != nil {
		return err
	}
	now, err := scan.s.serverTime(ctx)
	if err != nil {
		return err
	}
	if err := scan.count(ctx, all, now); err != nil {
		return err
	}
	if scan.opts.Limit > 0 && scan.Values >= scan.opts.Limit {
		return errEnough
	}
	return nil
}

// find gets the key from a name in Redis. If the key's hash begins with the requested Hash, find
// adds the key to Found, or the hash to Hashed if Redis has only the hash. It adds each once.
func (scan *scanning) find(name string) {
	id := name[len(scan.head):]
	end := strings.LastIndexByte(id, '}') // no suffix of a name has a brace
	if scan.opts.Hash == "" || end < 0 {
		return
	}
	id, wanted := id[:end], strings.ToLower(scan.opts.Hash)
	if hash, long := frame.HashOf(id); long {
		if strings.HasPrefix(hash, wanted) && !slices.Contains(scan.Hashed, hash) {
			scan.Hashed = append(scan.Hashed, hash)
		}
		return
	}
	key := strings.TrimPrefix(id, `\`)
	hash := sha256.Sum256([]byte(key))
	if strings.HasPrefix(hex.EncodeToString(hash[:]), wanted) && !slices.Contains(scan.Found, key) {
		scan.Found = append(scan.Found, key)
	}
}

// read reads the first bytes of each name.
func (scan *scanning) read(ctx context.Context, all []glance, most int64) error {
	if len(all) == 0 {
		return nil
	}
	_, err := twice(ctx, scan.s, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (_ struct{}, err error) {
		pipe := rdb.Pipeline()
		heads, sizes, lefts := make([]*redis.StringCmd, len(all)), make([]*redis.IntCmd, len(all)),
			make([]*redis.DurationCmd, len(all))
		for n, g := range all {
			heads[n], sizes[n], lefts[n] = pipe.GetRange(ctx, g.name, 0, most-1),
				pipe.StrLen(ctx, g.name), pipe.PTTL(ctx, g.name)
		}
		_, _ = redislink.Exec(ctx, pipe) // each command has its own error
		for n := range all {
			g := &all[n]
			g.b, err = heads[n].Bytes()
			if err == nil {
				g.size, err = sizes[n].Result()
			}
			if err != nil && !isWrongType(err) {
				return struct{}{}, err
			}
			if g.left, err = lefts[n].Result(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// readTags reads more of the values whose tags are longer than the part that was read.
func (scan *scanning) readTags(ctx context.Context, all []glance) error {
	var cut []glance
	var places []int
	for n, g := range all {
		if _, err := frame.Head(g.b); g.value && int64(len(g.b)) < g.size &&
			(errors.Is(err, frame.ErrTruncated) || g.b[0] == 0) {
			cut, places = append(cut, g), append(places, n)
		}
	}
	err := scan.read(ctx, cut, frame.MaxHead)
	for n, g := range cut {
		all[places[n]] = g
	}
	return err
}

const gone = -2 // answer of PTTL for a name that no longer exists

// count counts the entries that were read.
func (scan *scanning) count(ctx context.Context, all []glance, now time.Time) error {
	var headers []frame.Header
	var tags []string
	at := map[string]int{} // index of each tag in tags
	for _, g := range all {
		if g.left == gone {
			continue
		}
		if !g.value {
			scan.countLease(g)
			continue
		}
		scan.Values++
		scan.Bytes += g.size
		scan.Largest = max(scan.Largest, g.size)
		countIn(scan.Lifetimes, g.left)
		h, err := scan.header(g)
		if err != nil {
			state := StateUnreadable
			if _, ok := frame.RemnantTags(g.b); ok {
				state = StateRemnant
			}
			scan.States[state]++
			continue
		}
		countIn(scan.Ages, max(now.Sub(h.Created), 0))
		headers = append(headers, h)
		for _, tag := range h.Tags.All() {
			if _, known := at[tag]; !known {
				at[tag] = len(tags)
				tags = append(tags, tag)
			}
		}
	}
	if len(headers) == 0 {
		return nil
	}
	whole, of, err := scan.s.scores(ctx, scan.Cache, tags)
	if err != nil {
		return err
	}
	for _, h := range headers {
		found := sight{now: now, whole: whole}
		if len(of) > 0 {
			found.scores = append(found.scores, of[0])
			for _, tag := range h.Tags.All() {
				found.scores = append(found.scores, of[1+at[tag]])
			}
		}
		i := Inspection{Value: &InspectedValue{}}
		i.judgeHeader(h, found)
		scan.States[i.State]++
		if served := i.State == StateFresh || i.State == StateStale ||
			i.State == StateOnError; h.Null && served {
			scan.NotFound++
		}
	}
	return nil
}

func (scan *scanning) countLease(g glance) {
	switch s, ok := parseStanding(string(g.b)); {
	case ok && s.record:
		scan.Records++
	case ok:
		scan.Leases++
	default:
		scan.foreign++
	}
}

// header returns the header of a value. If the whole value was read, its checksum is verified, too.
func (scan *scanning) header(g glance) (h frame.Header, err error) {
	if int64(len(g.b)) < g.size {
		scan.Unchecked++
		return frame.Head(g.b)
	}
	h, _, err = frame.Parse(g.b)
	return h, err
}
