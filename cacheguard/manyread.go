package cacheguard

import (
	"context"
	"errors"
	"time"
)

// keyErrs are errors by the number of the key; nil is none at all.
type keyErrs map[int]error

func (e keyErrs) at(i int) error { return e[i] }

// readMany is read for many keys.
func (c *Cache[V]) readMany(ctx context.Context, keys []Key) ([]found[V], keyErrs) {
	tags := []string{}
	var at map[string]int // of tags
	hints := make([]*hint, len(keys))
	for i, k := range keys {
		hints[i] = c.hints.of(k.Key)
		for _, tag := range hints[i].list() {
			if _, ok := at[tag]; !ok {
				if at == nil {
					at = make(map[string]int)
				}
				at[tag] = len(tags)
				tags = append(tags, tag)
			}
		}
	}
	var before []moment
	if c.near != nil {
		before = make([]moment, len(keys))
		for i, k := range keys {
			before[i] = c.near.stamp(k.Key)
		}
	}
	replies, of := c.store.GetMany(ctx, keys, tags)
	all := make([]found[V], len(keys))
	var errs keyErrs
	failed := func(i int, err error) {
		if errs == nil {
			errs = keyErrs{}
		}
		errs[i] = err
		all[i] = found[V]{id: all[i].id}
	}
	if len(replies) != len(keys) {
		for i := range keys {
			failed(i, errReplies)
		}
		return all, errs
	}
	if len(of) != 1+len(tags) || of[0] == 0 {
		of = nil
	}
	var unsure []int // what has tags that weren't asked for
	now := c.store.Now()
	for i := range replies {
		r := &replies[i]
		switch {
		case r.Err != nil:
			failed(i, r.Err)
			continue
		case r.Answer != nil:
			c.openInto(&all[i], r.Answer, now)
		}
		if all[i].res.Status == StatusMiss {
			continue
		}
		if hints[i] != untagged || len(all[i].tags) > 0 {
			c.hints.note(keys[i].Key, all[i].tags)
		}
		known := of != nil
		if known && len(all[i].tags) > 0 {
			for _, tag := range all[i].tags.All() {
				if _, ok := at[tag]; !ok {
					known = false
					break
				}
			}
		}
		if !known {
			unsure = append(unsure, i)
		} else if !all[i].after(of, at, now) {
			all[i] = found[V]{id: all[i].id}
		}
	}
	if len(unsure) > 0 {
		of, at, err := c.generations(ctx, all, unsure)
		for _, i := range unsure {
			if err != nil {
				failed(i, err)
			} else if !all[i].after(of, at, now) {
				all[i] = found[V]{id: all[i].id}
			}
		}
	}
	if len(errs) < len(keys) {
		c.up(ctx, &c.reading)
	}
	if c.near != nil {
		for i, k := range keys {
			c.near.keep(k.Key, before[i], all[i])
		}
	}
	return all, errs
}

var errReplies = errors.New("cacheguard: the store answered another number of questions")

// generations reads those of all tags of some values.
func (c *Cache[V]) generations(ctx context.Context, all []found[V], some []int) (Generations, map[string]int, error) {
	var tags []string
	at := make(map[string]int)
	for _, i := range some {
		for _, tag := range all[i].tags.All() {
			if _, ok := at[tag]; !ok {
				at[tag] = len(tags)
				tags = append(tags, tag)
			}
		}
	}
	of, err := c.store.Generations(ctx, c.opts.Name, tags)
	if err == nil && len(of) != 1+len(tags) {
		err = errGenerations
	}
	return of, at, err
}

// after reports whether a value was loaded after the last invalidation of its cache and its tags, and ages it if it was not
// after that of a soft one; at says where they are after the first of the generations.
func (got *found[V]) after(of Generations, at map[string]int, now time.Time) bool {
	if got.stamp <= of[0] {
		return false
	}
	if len(got.tags) > 0 {
		for i, tag := range got.tags.All() {
			generation := of[1+at[tag]]
			if got.stamp > generation {
				continue
			}
			if !got.tags.Soft(i) {
				return false
			}
			got.mark(now.Sub(time.UnixMicro(generation)))
		}
	}
	return true
}
