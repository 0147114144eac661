package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// inOneTrip is the largest number of steps in one pipeline.
const inOneTrip = 256

// GetMany reads many keys of one cache together with the generations of the cache and of these
// tags. On a single server one trip reads up to 1,024 keys.
func (s *Store) GetMany(
	ctx context.Context, keys []cacheguard.Key, tags []string,
) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
	if len(keys) == 0 {
		return nil, nil
	}
	if s.cluster != nil {
		replies, of := s.getManyEach(ctx, keys), cacheguard.Generations(nil)
		if tags != nil {
			of = s.known(keys[0].Cache, tags)
		}
		return replies, of
	}
	replies := make([]cacheguard.Reply[[]byte], len(keys))
	var of cacheguard.Generations
	done := 0
	for some := range slices.Chunk(keys, 4*inOneTrip) {
		b := newBatch(len(some))
		b.args = s.names.values(b.args, some)
		if tags != nil && of == nil {
			b.want(keys[0].Cache, tags)
		}
		got, err := s.getManyAtOnce(ctx, b)
		for i := range some {
			if r := &replies[done+i]; err != nil {
				r.Err = err
			} else {
				r.Answer, r.Err = got.frame(i)
			}
		}
		done += len(some)
		if err == nil && of == nil && tags != nil {
			of = b.generations(keys[0].Cache, tags)
		}
	}
	return replies, of
}

func (s *Store) getManyAtOnce(ctx context.Context, b *batch) (frames, error) {
	if err := s.knowTime(ctx); err != nil {
		return frames{}, err
	}
	return look(ctx, s, b.names()[0].(string), s.manyAtOnce(b))
}

// getManyEach reads keys of a cluster through the batches of its nodes. A node gets up to four
// batches at a time.
func (s *Store) getManyEach(ctx context.Context, keys []cacheguard.Key) []cacheguard.Reply[[]byte] {
	replies := make([]cacheguard.Reply[[]byte], len(keys))
	if err := s.knowTime(ctx); err != nil {
		for i := range replies {
			replies[i].Err = err
		}
		return replies
	}
	var reading sync.WaitGroup
	for i, k := range keys {
		name := s.names.value(k)
		if err := s.health.of(name).refusal(); err != nil {
			replies[i].Err = err
			continue
		}
		reading.Go(func() {
			replies[i].Answer, _, replies[i].Err = s.reads.batched(ctx, want{name: name},
				s.opts.OpTimeout)
		})
	}
	reading.Wait()
	return replies
}

// LeaseMany asks for the leases of many keys of one cache.
func (s *Store) LeaseMany(
	ctx context.Context, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
) []cacheguard.Reply[cacheguard.LeaseAnswer] {
	replies := make([]cacheguard.Reply[cacheguard.LeaseAnswer], len(keys))
	if err := s.readyToLease(ctx); err != nil {
		for i := range replies {
			replies[i].Err = err
		}
		return replies
	}
	stamp := int64(0)
	for i, r := range pipelined(ctx, s, call, leaseScript, len(keys),
		func(i int) ([]string, []any) {
			return s.leaseStep(keys[i], asks[i])
		}) {
		ans, err := cacheguard.LeaseAnswer{}, r.Err
		if err == nil {
			reply, _ := r.Answer.([]any)
			ans, err = parseLease(reply, asks[i].Token)
		}
		if err == nil && (ans.State == cacheguard.LeaseValue || ans.Stands) {
			err = s.complete(ctx, keys[i], asks[i].Tags, &ans)
		}
		if err == nil && ans.State == cacheguard.LeaseGranted {
			ans.Grant.Stamp = ans.Grant.Number
			if s.cluster != nil {
				// One stamp is enough for all, because none of the loads has begun yet.
				if stamp == 0 {
					stamp = s.stamp(ctx, keys[i].Cache)
				}
				ans.Grant.Stamp = stamp
			}
		}
		replies[i] = cacheguard.Reply[cacheguard.LeaseAnswer]{Answer: ans, Err: err}
	}
	return replies
}

// FillMany stores the results of a load of many keys.
func (s *Store) FillMany(
	ctx context.Context, fills []cacheguard.FillAsk,
) []cacheguard.Reply[cacheguard.FillAnswer] {
	replies := make([]cacheguard.Reply[cacheguard.FillAnswer], len(fills))
	for i, r := range pipelined(ctx, s, call, fillScript, len(fills),
		func(i int) ([]string, []any) {
			f := fills[i]
			return s.fillStep(f.Key, f.Grant, f.Frame, f.TTL)
		}) {
		ans, err := cacheguard.FillAnswer(0), r.Err
		if err == nil {
			reply, _ := r.Answer.(string)
			ans, err = parseFill(reply)
		}
		replies[i] = cacheguard.Reply[cacheguard.FillAnswer]{Answer: ans, Err: err}
	}
	return replies
}

// RenewMany renews many leases.
func (s *Store) RenewMany(
	ctx context.Context, keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
) []cacheguard.Reply[cacheguard.Holding] {
	replies := make([]cacheguard.Reply[cacheguard.Holding], len(keys))
	for i, r := range pipelined(ctx, s, look, renewScript, len(keys),
		func(i int) ([]string, []any) {
			return s.renewStep(keys[i], grants[i], ttl)
		}) {
		ans, err := cacheguard.Holding(0), r.Err
		if err == nil {
			reply, _ := r.Answer.(string)
			ans, err = parseHolding(reply)
		}
		replies[i] = cacheguard.Reply[cacheguard.Holding]{Answer: ans, Err: err}
	}
	return replies
}

// pipelined runs a script n times, in pipelines. In a cluster each node gets its own pipelines, one
// after another, and all nodes get theirs at the same time, so that a dead node fails only its own
// keys.
func pipelined(
	ctx context.Context, s *Store, way way[[]cacheguard.Reply[any]], script script, n int,
	step func(i int) (keys []string, args []any),
) []cacheguard.Reply[any] {
	replies := make([]cacheguard.Reply[any], n)
	byNode := make(map[*redis.Client][]int)
	for i := range n {
		keys, _ := step(i)
		node := s.link.Node(keys[0])
		byNode[node] = append(byNode[node], i)
	}
	var nodes sync.WaitGroup
	for _, all := range byNode {
		nodes.Go(func() {
			// Set if the node doesn't answer; further trips would take as long, in vain.
			var away error
			for some := range slices.Chunk(all, inOneTrip) {
				if away != nil {
					for _, i := range some {
						replies[i].Err = away
					}
					continue
				}
				first, _ := step(some[0])
				got, err := way(ctx, s, first[0], func(
					ctx context.Context, rdb redis.UniversalClient,
				) ([]cacheguard.Reply[any], error) {
					return s.atOnce(ctx, rdb, script, some, step)
				})
				for j, i := range some {
					if replies[i].Err = err; got != nil {
						replies[i] = got[j]
					}
				}
				if got == nil && err != nil && redislink.NoAnswer(err) {
					away = err
				}
			}
		})
	}
	nodes.Wait()
	return replies
}

// atOnce runs one pipeline. Its first step sends the script's text, because after a SCRIPT FLUSH
// nothing in the pipeline would send it again. Steps that end up at another node of a cluster are
// repeated one by one. If the whole pipeline fails, atOnce returns its error and no replies. Then
// the pipeline is sent once more, which is harmless. If every step failed, atOnce returns the first
// step's error with the replies, because a Redis where all steps fail doesn't work.
func (s *Store) atOnce(
	ctx context.Context, rdb redis.UniversalClient, script script, some []int,
	step func(i int) ([]string, []any),
) ([]cacheguard.Reply[any], error) {
	replies := make([]cacheguard.Reply[any], len(some))
	if len(some) > 1 {
		pipe := rdb.Pipeline()
		for j, i := range some {
			keys, args := step(i)
			if j == 0 {
				script.Eval(ctx, pipe, keys, args...)
			} else {
				script.EvalSha(ctx, pipe, keys, args...)
			}
		}
		cmds, err := redislink.Exec(ctx, pipe)
		if err != nil && redislink.NoAnswer(err) {
			return nil, err
		}
		for j, cmd := range cmds {
			replies[j].Answer, replies[j].Err = cmd.(*redis.Cmd).Result()
		}
	}
	for j, i := range some {
		if err := replies[j].Err; len(some) == 1 || answered(err, "NOSCRIPT") || isTryAgain(err) {
			keys, args := step(i)
			if replies[j].Answer, err = script.Run(ctx, rdb, keys, args...).Result(); err != nil &&
				(len(some) == 1 || redislink.NoAnswer(err)) {
				return nil, err
			}
			replies[j].Err = err
		}
		if replies[j].Err != nil {
			replies[j].Err = fmt.Errorf("redisstore: %w", s.explained(replies[j].Err))
		}
	}
	if slices.ContainsFunc(replies, func(r cacheguard.Reply[any]) bool { return r.Err == nil }) {
		return replies, nil
	}
	return replies, replies[0].Err
}
