package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// Lease asks for the lease. It starts the subscription if necessary, but doesn't wait for it,
// because only waiters need messages.
func (s *Store) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (ans cacheguard.LeaseAnswer, err error) {
	if err := s.readyToLease(ctx); err != nil {
		return ans, err
	}
	keys, args := s.leaseStep(k, ask)
	reply, err := call(ctx, s, keys[0], func(
		ctx context.Context, rdb redis.UniversalClient,
	) ([]any, error) {
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

// complete reads a value that is too large for the script's answer. In a cluster another node has
// the generations, so complete uses the known ones.
func (s *Store) complete(
	ctx context.Context, k cacheguard.Key, tags []string, ans *cacheguard.LeaseAnswer,
) (err error) {
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
	args = []any{
		s.token(ask.Token), millis(ask.TTL), ask.Seen, awaited, told, s.channelOf(k.Cache),
		millis(protocol.WaitersStay),
	}
	if s.cluster == nil {
		for _, tag := range ask.Tags {
			args = append(args, tag)
		}
	}
	return s.near(k, value, s.names.lease(value)), args
}

// near returns these names of a key. The first one must be the name of the value. If the key's node
// also has the cache's generations and the list of waiters, near adds their names.
func (s *Store) near(k cacheguard.Key, names ...string) []string {
	if s.cluster == nil {
		names = append(names, s.names.generations(k.Cache), s.names.whole(k.Cache))
	}
	return s.waited(names[0], names...)
}

// waited returns these names, followed by the list of waiters if the store uses inboxes.
func (s *Store) waited(value string, names ...string) []string {
	if s.inbox != "" {
		names = append(names, s.names.waiters(value))
	}
	return names
}

// stamped sets the stamp of a grant. On a single server the stamp is the grant's number. In a
// cluster stamped reads the stamp from the node that has the generations.
func (s *Store) stamped(ctx context.Context, k cacheguard.Key, g *cacheguard.Grant) {
	g.Stamp = g.Number
	if s.cluster != nil {
		g.Stamp = s.stamp(ctx, k.Cache)
	}
}

// Fill stores a load's result if the load still has its lease.
func (s *Store) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, frame []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	keys, args := s.fillStep(k, g, frame, ttl)
	reply, err := call(ctx, s, keys[0], func(
		ctx context.Context, rdb redis.UniversalClient,
	) (string, error) {
		return fillScript.Run(ctx, rdb, keys, args...).Text()
	})
	if err != nil {
		return 0, err
	}
	return parseFill(reply)
}

func (s *Store) fillStep(
	k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (keys []string, args []any) {
	value := s.names.value(k)
	keys = s.waited(value, value, s.names.lease(value))
	args = []any{
		s.holder(g), f, millis(ttl), encodeMessage(kindFilled, k, g.Token), frame.MaxCarried,
		s.channelOf(k.Cache), s.names.channel(),
	}
	if g.Claimed {
		args = append(args, 1+len(keys), encodeMessage(kindChanged, k, cacheguard.ID{}))
		keys = append(keys, s.others(k)...)
	}
	return keys, args
}

// Conclude ends a lease without storing a value.
func (s *Store) Conclude(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
	keep, backoff time.Duration,
) error {
	letter, payload := encodeOutcome(o)
	message := encodeMessage(kindOutcome, k, g.Token, append([]byte{letter}, payload...)...)
	value, drop := s.names.value(k), "0"
	if o.Drop {
		drop = "1"
	}
	return s.run(ctx, look, concludeScript, s.waited(value, s.names.lease(value), value),
		s.holder(g), encodeRecord(g.Token, keep, backoff, o), millis(keep), drop, message,
		s.channelOf(k.Cache), s.names.channel())
}

// Renew sets the remaining time of a lease to ttl.
func (s *Store) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	keys, args := s.renewStep(k, g, ttl)
	reply, err := look(ctx, s, keys[0], func(
		ctx context.Context, rdb redis.UniversalClient,
	) (string, error) {
		return renewScript.Run(ctx, rdb, keys, args...).Text()
	})
	if err != nil {
		return 0, err
	}
	return parseHolding(reply)
}

func (s *Store) renewStep(
	k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (keys []string, args []any) {
	value := s.names.value(k)
	return s.waited(value, s.names.lease(value)), []any{
		s.holder(g), millis(ttl), millis(protocol.WaitersStay),
	}
}

// Release gives up a lease.
func (s *Store) Release(ctx context.Context, k cacheguard.Key, token cacheguard.ID) error {
	value := s.names.value(k)
	return s.run(ctx, look, releaseScript, s.waited(value, s.names.lease(value)),
		s.token(token), encodeMessage(kindReleased, k, token), s.channelOf(k.Cache),
		s.names.channel())
}

// Claim removes the value and takes over the lease.
func (s *Store) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (cacheguard.Grant, error) {
	s.changes()
	reply, err := change(ctx, s, s.names.value(k), func(
		ctx context.Context, rdb redis.UniversalClient,
	) ([]string, error) {
		keys := s.near(k, s.all(k)...)
		return claimScript.Run(ctx, rdb, append(keys, s.others(k)...),
			s.token(token), millis(ttl), s.channelOf(k.Cache), s.names.channel(),
			encodeMessage(kindChanged, k, token), 1+len(keys)).StringSlice()
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

// Invalidate removes everything that is stored for the keys.
func (s *Store) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	return s.changeAll(ctx, keys, invalidateScript)
}

// MarkStale marks the values of the keys stale and ends the keys' leases.
func (s *Store) MarkStale(ctx context.Context, keys []cacheguard.Key, at int, mark []byte) error {
	return s.changeAll(ctx, keys, markScript, at, mark, cacheguard.Versions)
}

// changeAll runs a script for each key.
func (s *Store) changeAll(
	ctx context.Context, keys []cacheguard.Key, script script, args ...any,
) error {
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

// told returns the arguments of a script. The first ones tell the script where to publish that a
// key changed, then come args.
func (s *Store) told(k cacheguard.Key, args []any) []any {
	return append([]any{
		s.channelOf(k.Cache), s.names.channel(), encodeMessage(kindChanged, k, cacheguard.ID{}),
	}, args...)
}

// invalidateApart invalidates a key whose slot is moving from one node of a cluster to another. If
// the key was to be marked stale, it is invalidated instead. During the move neither node executes
// a command with several names if it has only some of them, but a command with one name works. The
// lease is removed first. Then every load that begins later brings a new value, and at worst the
// key is loaded twice.
func (s *Store) invalidateApart(ctx context.Context, k cacheguard.Key) error {
	all := s.everything(k)
	slices.Reverse(all)
	for _, name := range all {
		_, err := change(ctx, s, name, func(
			ctx context.Context, rdb redis.UniversalClient,
		) (int64, error) {
			return rdb.Del(ctx, name).Result()
		})
		if err != nil {
			return err
		}
	}
	_, err := change(ctx, s, s.names.value(k), func(
		ctx context.Context, rdb redis.UniversalClient,
	) (int64, error) {
		return rdb.Publish(ctx, s.names.channel(),
			encodeMessage(kindChanged, k, cacheguard.ID{})).Result()
	})
	return err
}

// way is one of the functions call, look and change.
type way[T any] func(context.Context, *Store, string,
	func(context.Context, redis.UniversalClient) (T, error)) (T, error)

// run runs a script and ignores its answer.
func (s *Store) run(
	ctx context.Context, way way[struct{}], script script, keys []string, args ...any,
) error {
	_, err := way(ctx, s, keys[0], func(
		ctx context.Context, rdb redis.UniversalClient,
	) (struct{}, error) {
		return struct{}{}, script.Run(ctx, rdb, keys, args...).Err()
	})
	return err
}

// everything returns all names of a key, in all its versions, those of the values first.
func (s *Store) everything(k cacheguard.Key) (names []string) {
	for k.Version = range uint8(cacheguard.Versions) {
		names = append(names, s.names.value(k))
	}
	for _, value := range names[:cacheguard.Versions] {
		names = s.waited(value, append(names, s.names.next(value), s.names.lease(value))...)
	}
	return names
}

// others returns all names of the key's other versions.
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

// all returns the names that a change must remove for one version of a key, except the list of
// waiters. One of them is the value of the next frame format. So programs of two formats can run
// side by side: each reads its own values, and a change removes both.
func (s *Store) all(k cacheguard.Key) []string {
	value := s.names.value(k)
	return []string{value, s.names.lease(value), s.names.next(value)}
}
