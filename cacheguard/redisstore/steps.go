package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// maxCarried is the largest frame that a message carries: enough for most values, little enough for a fleet in which
// every process gets every message.
const maxCarried = 4 << 10

// Lease asks for the lease. The first lease begins the subscription, beside the question and not before it, so that a
// leader doesn't wait for what only waiters need.
func (s *Store) Lease(ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk) (ans cacheguard.LeaseAnswer, err error) {
	if _, err := s.subscribe(); err != nil {
		return ans, err
	}
	if err := s.knowTime(ctx); err != nil {
		return ans, err
	}
	value := s.names.value(k)
	awaited, wait := "", "0"
	if !ask.Awaited.IsZero() {
		awaited = ask.Awaited.String()
	}
	if ask.Wait {
		wait = "1"
	}
	reply, err := call(ctx, s, value, func(ctx context.Context, rdb redis.UniversalClient) ([]any, error) {
		return leaseScript.Run(ctx, rdb, []string{value, s.names.lease(value)},
			ask.Token.String(), millis(ask.TTL), ask.Seen, awaited, wait).Slice()
	})
	if err != nil {
		return ans, err
	}
	ans, err = parseLease(reply, ask.Token)
	if err == nil && ans.State == cacheguard.LeaseValue && ans.Frame == nil {
		ans.Frame, err = s.Get(ctx, k)
	}
	return ans, err
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
	left := func(i int) time.Duration { return time.Duration(number(i)) * time.Millisecond }
	switch text(0) {
	case "granted":
		ans.State = cacheguard.LeaseGranted
		ans.Grant, err = grant(token, text(1))
		ans.Failures = int(number(2))
	case "held":
		ans.State, ans.Holder, ans.Remaining = cacheguard.LeaseHeld, parseID(text(1)), left(2)
	case "value":
		ans.State = cacheguard.LeaseValue
		if f := text(1); f != "" {
			ans.Frame = []byte(f)
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
	return s.fill(ctx, call, k, g, frame, ttl)
}

func (s *Store) fill(ctx context.Context, way way[string], k cacheguard.Key, g cacheguard.Grant, frame []byte, ttl time.Duration) (cacheguard.FillAnswer, error) {
	value := s.names.value(k)
	reply, err := way(ctx, s, value, func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
		return fillScript.Run(ctx, rdb, []string{value, s.names.lease(value)},
			holder(g), frame, millis(ttl), s.names.channel(), encodeMessage(kindFilled, k, g.Token), maxCarried).Text()
	})
	if err != nil {
		return 0, err
	}
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
	record := fmt.Appendf(nil, "!%c%s:%d:%d:%d:%s", letter, g.Token, millis(keep), millis(backoff), o.Failures, payload)
	message := encodeMessage(kindOutcome, k, g.Token, append([]byte{letter}, payload...)...)
	value, drop := s.names.value(k), "0"
	if o.Drop {
		drop = "1"
	}
	return s.run(ctx, look, concludeScript, []string{s.names.lease(value), value},
		holder(g), record, millis(keep), s.names.channel(), message, drop)
}

// Renew prolongs a lease.
func (s *Store) Renew(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration) (cacheguard.Holding, error) {
	value := s.names.value(k)
	reply, err := look(ctx, s, value, func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
		return renewScript.Run(ctx, rdb, []string{s.names.lease(value)}, holder(g), millis(ttl)).Text()
	})
	if err != nil {
		return 0, err
	}
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
	return s.run(ctx, look, releaseScript, []string{s.names.lease(s.names.value(k))},
		token.String(), s.names.channel(), encodeMessage(kindReleased, k, token))
}

// Claim removes the value and takes the lease over.
func (s *Store) Claim(ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration) (cacheguard.Grant, error) {
	reply, err := change(ctx, s, s.names.value(k), func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
		return claimScript.Run(ctx, rdb, s.all(k),
			token.String(), millis(ttl), s.names.channel(), encodeMessage(kindChanged, k, token)).Text()
	})
	if err != nil {
		return cacheguard.Grant{}, err
	}
	return grant(token, reply)
}

// Set stores a value and ends the lease: it claims the key and fills it. One script could do both, but a copy of that
// one which is held up on its way could arrive after a later Set or Invalidate and bring the old value back; a late copy
// of a claim costs a miss, and one of a fill is refused. A fill that is refused lost to a later change, which is as good
// as a Set that came before it.
func (s *Store) Set(ctx context.Context, k cacheguard.Key, frame []byte, ttl time.Duration) error {
	var token cacheguard.ID
	_, _ = rand.Read(token[:]) // never fails
	g, err := s.Claim(ctx, k, token, max(4*s.opts.OpTimeout, time.Second))
	if err != nil {
		return err
	}
	_, err = s.fill(ctx, change, k, g, frame, ttl)
	return err
}

// Invalidate removes everything known about the keys, in pipelines: in a cluster one for each node, at the same time,
// so that one that is dead fails its own keys only.
func (s *Store) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	if len(keys) == 1 {
		if err := s.invalidate(ctx, keys[0]); err != nil {
			return cacheguard.KeyErrors{keys[0].Key: err}
		}
		return nil
	}
	byNode := make(map[*redis.Client][]cacheguard.Key)
	for _, k := range keys {
		node := s.node(s.names.value(k))
		byNode[node] = append(byNode[node], k)
	}
	failed := cacheguard.KeyErrors{}
	var mu sync.Mutex // guards failed
	var nodes sync.WaitGroup
	for _, keys := range byNode {
		nodes.Go(func() {
			const most = 256 // keys in one pipeline
			for some := range slices.Chunk(keys, most) {
				errs := s.invalidateAll(ctx, some)
				mu.Lock()
				maps.Copy(failed, errs)
				mu.Unlock()
			}
		})
	}
	nodes.Wait()
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// invalidateAll is one pipeline. The whole script goes along: after a SCRIPT FLUSH nothing in a pipeline would send it
// again.
func (s *Store) invalidateAll(ctx context.Context, keys []cacheguard.Key) cacheguard.KeyErrors {
	errs, err := change(ctx, s, s.names.value(keys[0]), func(ctx context.Context, rdb redis.UniversalClient) ([]error, error) {
		pipe := rdb.Pipeline()
		for _, k := range keys {
			invalidateScript.Eval(ctx, pipe, s.all(k), s.names.channel(), encodeMessage(kindChanged, k, cacheguard.ID{}))
		}
		cmds, err := pipe.Exec(ctx)
		errs := make([]error, len(cmds))
		for i, cmd := range cmds {
			errs[i] = cmd.Err()
		}
		if err != nil && noAnswer(err) {
			return errs, err // the whole once more: it is harmless
		}
		return errs, nil
	})
	failed := cacheguard.KeyErrors{}
	for i, k := range keys {
		its := err
		if err == nil && errs[i] != nil {
			its = fmt.Errorf("redisstore: %w", errs[i])
		}
		if isTryAgain(its) {
			its = s.invalidateApart(ctx, k)
		}
		if its != nil {
			failed[k.Key] = its
		}
	}
	return failed
}

func (s *Store) invalidate(ctx context.Context, k cacheguard.Key) error {
	err := s.run(ctx, change, invalidateScript, s.all(k), s.names.channel(), encodeMessage(kindChanged, k, cacheguard.ID{}))
	if isTryAgain(err) {
		return s.invalidateApart(ctx, k)
	}
	return err
}

// invalidateApart is an invalidation in a slot that is on its way from one node of a cluster to another. As long as
// that lasts neither node does anything with several names of which only some are there, but each name alone is found.
// The lease goes first: what is loaded from then on is new, and at worst it is loaded twice.
func (s *Store) invalidateApart(ctx context.Context, k cacheguard.Key) error {
	all := s.all(k)
	for _, name := range []string{all[1], all[0], all[2]} {
		_, err := change(ctx, s, name, func(ctx context.Context, rdb redis.UniversalClient) (int64, error) {
			return rdb.Del(ctx, name).Result()
		})
		if err != nil {
			return err
		}
	}
	_, err := change(ctx, s, all[0], func(ctx context.Context, rdb redis.UniversalClient) (int64, error) {
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

// all is every name of a key that a change touches. The next format's value is one of them, so that programs of two
// versions can run side by side: each reads its own, and a change removes both.
func (s *Store) all(k cacheguard.Key) []string {
	value := s.names.value(k)
	return []string{value, s.names.lease(value), s.names.next(value)}
}

// holder is what a lease carries for a grant.
func holder(g cacheguard.Grant) string { return g.Token.String() + strconv.FormatInt(g.Number, 10) }

func grant(token cacheguard.ID, number string) (cacheguard.Grant, error) {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
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

// isWrongType reports that something else than a string stands under a name.
func isWrongType(err error) bool { return answered(err, "WRONGTYPE") }

// isTryAgain reports that some of a command's names are on another node.
func isTryAgain(err error) bool { return answered(err, "TRYAGAIN") }

func answered(err error, code string) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), code)
}
