package redisstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// maxCarried is the largest frame that a message carries: enough for most values, little enough for
// a fleet in which every process waits.
const maxCarried = 4 << 10

// Lease asks for the lease. The first lease begins the subscription, beside the question and not
// before it, so that a leader doesn't wait for what only waiters need.
func (s *Store) Lease(ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk) (ans cacheguard.LeaseAnswer, err error) {
	if err := s.readyToLease(ctx); err != nil {
		return ans, err
	}
	keys, args := s.leaseStep(k, ask)
	reply, err := call(ctx, s, keys[0], func(ctx context.Context, rdb redis.UniversalClient) ([]any, error) {
		return leaseScript.Run(ctx, rdb, keys, args...).Slice()
	})
	if err == nil {
		ans, err = parseLease(reply, ask.Token)
	}
	if err == nil && (ans.State == cacheguard.LeaseValue || ans.Stands) {
		err = s.complete(ctx, k, ask.Tags, &ans)
	}
	if err == nil && ans.State == cacheguard.LeaseGranted {
		s.stamped(ctx, k, &ans.Grant)
	}
	return ans, err
}

// complete reads a value that is too large for the script's answer. The generations of a cluster
// lie elsewhere: they are those that are known.
func (s *Store) complete(ctx context.Context, k cacheguard.Key, tags []string, ans *cacheguard.LeaseAnswer) (err error) {
	switch {
	case ans.State == cacheguard.LeaseValue && ans.Frame == nil:
		ans.Frame, ans.Of, err = s.Get(ctx, k, tags)
	case s.cluster != nil:
		ans.Of = s.known(k.Cache, tags)
	}
	return err
}

func (s *Store) readyToLease(ctx context.Context) error {
	if _, err := s.subscribe(); err != nil {
		return err
	}
	return s.knowTime(ctx)
}

func (s *Store) leaseStep(k cacheguard.Key, ask cacheguard.LeaseAsk) (keys []string, args []any) {
	value := s.names.value(k)
	awaited, told := "", ""
	if !ask.Awaited.IsZero() {
		awaited = ask.Awaited.String()
	}
	if ask.Wait {
		told = cmp.Or(s.inbox, "+")
	}
	args = []any{s.token(ask.Token), millis(ask.TTL), ask.Seen, awaited, told, s.channelOf(k.Cache), millis(waitersStay)}
	if s.cluster == nil {
		for _, tag := range ask.Tags {
			args = append(args, tag)
		}
	}
	return s.near(k, value, s.names.lease(value)), args
}

// near is these names of a key, the value first, and where they are on the same node those of the
// cache's generations and who waits.
func (s *Store) near(k cacheguard.Key, names ...string) []string {
	if s.cluster == nil {
		names = append(names, s.names.generations(k.Cache), s.names.whole(k.Cache))
	}
	return s.waited(names[0], names...)
}

// waited is these names, and where there are inboxes that of who waits.
func (s *Store) waited(value string, names ...string) []string {
	if s.inbox != "" {
		names = append(names, s.names.waiters(value))
	}
	return names
}

// stamped gives a grant its stamp: on a single server its number is one, in a cluster another node
// has the clock.
func (s *Store) stamped(ctx context.Context, k cacheguard.Key, g *cacheguard.Grant) {
	g.Stamp = g.Number
	if s.cluster != nil {
		g.Stamp = s.stamp(ctx, k.Cache)
	}
}

func parseLease(reply []any, token cacheguard.ID) (ans cacheguard.LeaseAnswer, err error) {
	text := func(i int) string {
		if i >= len(reply) {
			return ""
		}
		s, _ := reply[i].(string)
		return s
	}
	number := func(i int) int64 {
		if i >= len(reply) {
			return 0
		}
		n, _ := reply[i].(int64)
		return n
	}
	left := func(i int) time.Duration { return duration(number(i)) }
	switch text(0) {
	case "granted":
		ans.State = cacheguard.LeaseGranted
		ans.Grant, err = grant(token, text(1))
		ans.Failures = int(min(max(number(2), 0), mostFailures))
		if ans.Stands = len(reply) > 3 && reply[3] != nil && err == nil; ans.Stands {
			ans.Of = generationsIn(reply[3])
		}
	case "held":
		ans.State, ans.Holder, ans.Remaining = cacheguard.LeaseHeld, parseID(text(1)), left(2)
	case "value":
		ans.State = cacheguard.LeaseValue
		if f := text(1); f != "" {
			ans.Frame = []byte(f)
		}
		if len(reply) > 2 {
			ans.Of = generationsIn(reply[2])
		}
	case "outcome":
		var ok bool
		ans.State, ans.Holder, ans.Remaining = cacheguard.LeaseOutcome, parseID(text(1)), left(2)
		if letter := text(3); len(letter) == 1 {
			ans.Outcome, ok = decodeOutcome(letter[0], text(4))
		}
		if !ok {
			ans.Outcome = cacheguard.Outcome{Kind: cacheguard.OutcomeUnshared} // of a later version: load
		}
	default:
		err = fmt.Errorf("redisstore: the lease script answered %q", reply)
	}
	return ans, err
}

// Fill stores a load's result, if its lease is still its own.
func (s *Store) Fill(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, frame []byte, ttl time.Duration) (cacheguard.FillAnswer, error) {
	keys, args := s.fillStep(k, g, frame, ttl)
	reply, err := call(ctx, s, keys[0], func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
		return fillScript.Run(ctx, rdb, keys, args...).Text()
	})
	if err != nil {
		return 0, err
	}
	return parseFill(reply)
}

func (s *Store) fillStep(k cacheguard.Key, g cacheguard.Grant, frame []byte, ttl time.Duration) (keys []string, args []any) {
	value := s.names.value(k)
	keys = s.waited(value, value, s.names.lease(value))
	args = []any{s.holder(g), frame, millis(ttl), encodeMessage(kindFilled, k, g.Token), maxCarried, s.channelOf(k.Cache), s.names.channel()}
	if g.Claimed {
		args = append(args, 1+len(keys), encodeMessage(kindChanged, k, cacheguard.ID{}))
		keys = append(keys, s.others(k)...)
	}
	return keys, args
}

func parseFill(reply string) (cacheguard.FillAnswer, error) {
	switch reply {
	case "stored":
		return cacheguard.FillStored, nil
	case "gone":
		return cacheguard.FillGone, nil
	case "other":
		return cacheguard.FillOther, nil
	}
	return 0, fmt.Errorf("redisstore: the fill script answered %q", reply)
}

// Conclude ends a lease without a value.
func (s *Store) Conclude(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome, keep, backoff time.Duration) error {
	letter, payload := encodeOutcome(o)
	message := encodeMessage(kindOutcome, k, g.Token, append([]byte{letter}, payload...)...)
	value, drop := s.names.value(k), "0"
	if o.Drop {
		drop = "1"
	}
	return s.run(ctx, look, concludeScript, s.waited(value, s.names.lease(value), value),
		s.holder(g), encodeRecord(g.Token, keep, backoff, o), millis(keep), drop, message, s.channelOf(k.Cache), s.names.channel())
}

// Renew prolongs a lease.
func (s *Store) Renew(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration) (cacheguard.Holding, error) {
	keys, args := s.renewStep(k, g, ttl)
	reply, err := look(ctx, s, keys[0], func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
		return renewScript.Run(ctx, rdb, keys, args...).Text()
	})
	if err != nil {
		return 0, err
	}
	return parseHolding(reply)
}

func (s *Store) renewStep(k cacheguard.Key, g cacheguard.Grant, ttl time.Duration) (keys []string, args []any) {
	value := s.names.value(k)
	return s.waited(value, s.names.lease(value)), []any{s.holder(g), millis(ttl), millis(waitersStay)}
}

func parseHolding(reply string) (cacheguard.Holding, error) {
	switch reply {
	case "mine":
		return cacheguard.HoldingMine, nil
	case "gone":
		return cacheguard.HoldingGone, nil
	case "other":
		return cacheguard.HoldingOther, nil
	}
	return 0, fmt.Errorf("redisstore: the renew script answered %q", reply)
}

// Release gives a lease up.
func (s *Store) Release(ctx context.Context, k cacheguard.Key, token cacheguard.ID) error {
	value := s.names.value(k)
	return s.run(ctx, look, releaseScript, s.waited(value, s.names.lease(value)),
		s.token(token), encodeMessage(kindReleased, k, token), s.channelOf(k.Cache), s.names.channel())
}

// Claim removes the value and takes the lease over.
func (s *Store) Claim(ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration) (cacheguard.Grant, error) {
	s.changes()
	reply, err := change(ctx, s, s.names.value(k), func(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
		keys := s.near(k, s.all(k)...)
		return claimScript.Run(ctx, rdb, append(keys, s.others(k)...),
			s.token(token), millis(ttl), s.channelOf(k.Cache), s.names.channel(), encodeMessage(kindChanged, k, token), 1+len(keys)).StringSlice()
	})
	switch {
	case err != nil:
		return cacheguard.Grant{}, err
	case len(reply) == 0 || len(reply) > 2:
		return cacheguard.Grant{}, fmt.Errorf("redisstore: the claim script answered %q", reply)
	}
	g, err := grant(token, reply[0])
	if err != nil {
		return g, err
	}
	g.Claimed = true
	if len(reply) == 2 {
		g.Left = reply[1]
	}
	s.stamped(ctx, k, &g)
	return g, nil
}

// Invalidate removes everything known about the keys.
func (s *Store) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	return s.changeAll(ctx, keys, invalidateScript)
}

// MarkStale marks values stale and ends leases.
func (s *Store) MarkStale(ctx context.Context, keys []cacheguard.Key, at int, mark []byte) error {
	return s.changeAll(ctx, keys, markScript, at, mark, cacheguard.Versions)
}

// changeAll runs a script for each key.
func (s *Store) changeAll(ctx context.Context, keys []cacheguard.Key, script *redis.Script, args ...any) error {
	s.changes()
	failed := cacheguard.KeyErrors{}
	for i, r := range pipelined(ctx, s, change, script, len(keys), func(i int) ([]string, []any) {
		return s.everything(keys[i]), s.told(keys[i], args)
	}) {
		err := r.Err
		if isTryAgain(err) {
			err = s.invalidateApart(ctx, keys[i])
		} else if done, _ := r.Answer.(int64); err == nil && done != 1 {
			err = fmt.Errorf("redisstore: the script that changes a key answered %v", r.Answer)
		}
		if err != nil {
			failed[keys[i].Key] = err
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// told is a script's arguments: how it tells that a key changed, and the others.
func (s *Store) told(k cacheguard.Key, args []any) []any {
	return append([]any{s.channelOf(k.Cache), s.names.channel(), encodeMessage(kindChanged, k, cacheguard.ID{})}, args...)
}

// invalidateApart is an invalidation, in the place of a mark, too, in a slot that is on its way
// from one node of a cluster to another. As long as that lasts neither node does anything with
// several names of which only some are there, but each name alone is found. The lease goes first:
// what is loaded from then on is new, and at worst it is loaded twice.
func (s *Store) invalidateApart(ctx context.Context, k cacheguard.Key) error {
	all := s.everything(k)
	slices.Reverse(all)
	for _, name := range all {
		_, err := change(ctx, s, name, func(ctx context.Context, rdb redis.UniversalClient) (int64, error) {
			return rdb.Del(ctx, name).Result()
		})
		if err != nil {
			return err
		}
	}
	_, err := change(ctx, s, s.names.value(k), func(ctx context.Context, rdb redis.UniversalClient) (int64, error) {
		return rdb.Publish(ctx, s.names.channel(), encodeMessage(kindChanged, k, cacheguard.ID{})).Result()
	})
	return err
}

// way is call, look or change.
type way[T any] func(context.Context, *Store, string, func(context.Context, redis.UniversalClient) (T, error)) (T, error)

// run runs a script whose answer doesn't matter.
func (s *Store) run(ctx context.Context, way way[struct{}], script *redis.Script, keys []string, args ...any) error {
	_, err := way(ctx, s, keys[0], func(ctx context.Context, rdb redis.UniversalClient) (struct{}, error) {
		return struct{}{}, script.Run(ctx, rdb, keys, args...).Err()
	})
	return err
}

// everything is every name of a key, of all its versions: first those of the values.
func (s *Store) everything(k cacheguard.Key) (names []string) {
	for k.Version = range uint8(cacheguard.Versions) {
		names = append(names, s.names.value(k))
	}
	for _, value := range names[:cacheguard.Versions] {
		names = s.waited(value, append(names, s.names.next(value), s.names.lease(value))...)
	}
	return names
}

// others is every name of the key's other versions.
func (s *Store) others(k cacheguard.Key) (names []string) {
	own := k.Version
	for k.Version = range uint8(cacheguard.Versions) {
		if k.Version != own {
			all := s.all(k)
			names = append(names, s.waited(all[0], all...)...)
		}
	}
	return names
}

// all is every name of a version of a key that a change touches. The next format's value is one of
// them, so that programs of two formats can run side by side: each reads its own, and a change
// removes both.
func (s *Store) all(k cacheguard.Key) []string {
	value := s.names.value(k)
	return []string{value, s.names.lease(value), s.names.next(value)}
}

// holder is what a lease carries for a grant.
func (s *Store) holder(g cacheguard.Grant) string {
	return s.token(g.Token) + strconv.FormatInt(g.Number, 10)
}

// token is a load's in a lease. Capitals say that its holder knows of inboxes: programs that don't
// take either for the same.
func (s *Store) token(id cacheguard.ID) string {
	if s.inbox == "" {
		return id.String()
	}
	return strings.ToUpper(id.String())
}

func grant(token cacheguard.ID, number string) (cacheguard.Grant, error) {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n >= pastAll {
		return cacheguard.Grant{}, fmt.Errorf("redisstore: a lease has the number %q", number)
	}
	return cacheguard.Grant{Token: token, Number: n}, nil
}

// parseID returns the zero id, which names no load, for what is none.
func parseID(s string) (id cacheguard.ID) {
	if b, err := hex.DecodeString(s); err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// millis is a duration on the wire. Redis takes no TTL of zero.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(d.Milliseconds(), 1)
}

// mostWait is the longest time that Redis is believed; no option of a cache is longer.
const mostWait = 10 * 365 * 24 * time.Hour

// mostFailures in a row are told of; a pause after a failure has stopped growing long before.
const mostFailures = 1 << 20

// duration is a duration from the wire.
func duration(millis int64) time.Duration {
	return time.Duration(min(max(millis, 0), mostWait.Milliseconds())) * time.Millisecond
}

// isWrongType reports that something else than a string stands under a name.
func isWrongType(err error) bool { return answered(err, "WRONGTYPE") }

// isTryAgain reports that some of a command's names are on another node.
func isTryAgain(err error) bool { return answered(err, "TRYAGAIN") }

func answered(err error, code string) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), code)
}
