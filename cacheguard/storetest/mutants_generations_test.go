package storetest_test

import (
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/storetest"
)

// tagging makes a mutant that changes the cache and the tags in every step that takes them.
func tagging(change func(cache string, tags []string) (string, []string)) func(*broken) {
	return func(b *broken) {
		b.generations = func(cache string, tags []string) (cacheguard.Generations, error) {
			return b.Store.Generations(ctx, first(change(cache, tags)), second(change(cache, tags)))
		}
		b.withValue = func(
			k cacheguard.Key, tags []string, of cacheguard.Generations,
		) cacheguard.Generations {
			if tags != nil {
				of, _ = b.Generations(ctx, k.Cache, tags)
			}
			return of
		}
		b.invalidateTags = func(cache string, tags []string) (int64, error) {
			return b.Store.InvalidateTags(ctx, first(change(cache, tags)),
				second(change(cache, tags)))
		}
	}
}

func first(cache string, _ []string) string   { return cache }
func second(_ string, tags []string) []string { return tags }

// eachTag makes a mutant that changes tags one by one.
func eachTag(change func(tag string) string) func(*broken) {
	return tagging(func(cache string, tags []string) (string, []string) {
		var changed []string
		for _, tag := range tags {
			changed = append(changed, change(tag))
		}
		return cache, changed
	})
}

// onInvalidateTags makes a mutant that calls change in place of an invalidation.
func onInvalidateTags(
	change func(b *broken, cache string, tags []string) (int64, error),
) func(*broken) {
	return func(b *broken) {
		b.invalidateTags = func(cache string, tags []string) (int64, error) {
			return change(b, cache, tags)
		}
	}
}

// onGenerations makes a mutant that changes the generations that are returned, without and with a
// value.
func onGenerations(
	change func(b *broken, cache string, tags []string,
		of cacheguard.Generations) cacheguard.Generations,
) func(*broken) {
	return func(b *broken) {
		b.generations = func(cache string, tags []string) (cacheguard.Generations, error) {
			of, err := b.Store.Generations(ctx, cache, tags)
			return change(b, cache, tags, of), err
		}
		onValue(func(
			b *broken, k cacheguard.Key, tags []string, of cacheguard.Generations,
		) cacheguard.Generations {
			if of != nil {
				of = change(b, k.Cache, tags, of)
			}
			return of
		})(b)
	}
}

// onValue makes a mutant that changes the generations that come with a value.
func onValue(
	change func(b *broken, k cacheguard.Key, tags []string,
		of cacheguard.Generations) cacheguard.Generations,
) func(*broken) {
	return func(b *broken) {
		b.withValue = func(
			k cacheguard.Key, tags []string, of cacheguard.Generations,
		) cacheguard.Generations {
			return change(b, k, tags, of)
		}
	}
}

// onGrant makes a mutant that changes the stamp of each grant.
func onGrant(change func(b *broken, stamp int64) int64) func(*broken) {
	return func(b *broken) {
		onLease(func(
			b *broken, _ cacheguard.Key, _ cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			answer.Grant.Stamp = change(b, answer.Grant.Stamp)
		})(b)
		onClaim(change)(b)
		onLeaseMany(func(
			b *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			for i := range replies {
				replies[i].Answer.Grant.Stamp = change(b, replies[i].Answer.Grant.Stamp)
			}
		})(b)
	}
}

func onClaim(change func(b *broken, stamp int64) int64) func(*broken) {
	return func(b *broken) {
		b.claim = func(
			k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
		) (cacheguard.Grant, error) {
			g, err := b.Store.Claim(ctx, k, token, ttl)
			g.Stamp = change(b, g.Stamp)
			return g, err
		}
	}
}

// tick returns the time on the store's clock of generations.
func (b *broken) tick() int64 {
	now, _ := b.Store.InvalidateTags(ctx, "of which nobody knows", nil)
	return now
}

var generationMutants = []mutant{
	{
		name: "generations of a tag are forgotten",
		caught: []string{
			"generations of tags that were invalidated", "generations in the order asked for",
			"generations of tags of any bytes",
		},
		mutate: onGenerations(func(
			_ *broken, _ string, tags []string, of cacheguard.Generations,
		) cacheguard.Generations {
			if i := slices.Index(tags, "t"); i >= 0 {
				of[1+i] = 0
			}
			if len(tags) > 50 {
				of[50] = 0
			}
			return of
		}),
	},
	{
		name:   "generations are those of all caches",
		caught: []string{"generations of other caches", "message of invalidated tags"},
		mutate: tagging(func(_ string, tags []string) (string, []string) { return "all", tags }),
	},
	{
		name:   "generations are for the first letters of a cache's name",
		caught: []string{"generations of other caches"},
		mutate: tagging(func(cache string, tags []string) (string, []string) {
			return cache[:min(len(cache), 25)], tags
		}),
	},
	{
		name: "generations are of the wrong order",
		caught: []string{
			"generations in the order asked for", "generations of tags that were invalidated",
		},
		mutate: onGenerations(func(
			_ *broken, _ string, _ []string, of cacheguard.Generations,
		) cacheguard.Generations {
			slices.Reverse(of[1:])
			return of
		}),
	},
	{
		name:   "generations are sorted by tag",
		caught: []string{"generations in the order asked for"},
		mutate: tagging(func(cache string, tags []string) (string, []string) {
			return cache, slices.Sorted(slices.Values(tags))
		}),
	},
	{
		name:   "generations come last of the cache",
		caught: []string{"generations before any invalidation", "generation of the whole cache"},
		mutate: onGenerations(func(
			_ *broken, _ string, _ []string, of cacheguard.Generations,
		) cacheguard.Generations {
			return append(of[1:], of[0])
		}),
	},
	{
		name:   "generations come once for a tag that is named twice",
		caught: []string{"generations in the order asked for", "generations with a value"},
		mutate: tagging(func(cache string, tags []string) (string, []string) {
			return cache, slices.Compact(slices.Clone(tags))
		}),
	},
	{
		name:   "generations of a value are in the wrong order",
		caught: []string{"generations with a value"},
		mutate: onValue(func(
			_ *broken, _ cacheguard.Key, _ []string, of cacheguard.Generations,
		) cacheguard.Generations {
			slices.Reverse(of[min(1, len(of)):])
			return of
		}),
	},
	{
		name:   "generations of a value in the place of a lease are in the wrong order",
		caught: []string{"generations with a value"},
		mutate: onLease(func(
			_ *broken, _ cacheguard.Key, _ cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			slices.Reverse(answer.Of[min(1, len(answer.Of)):])
		}),
	},
	{
		name: "generations of a value lack the cache's own",
		caught: []string{
			"generations with a value", "generations of tags of any bytes",
			"generations of other caches",
		},
		mutate: onValue(func(
			_ *broken, _ cacheguard.Key, _ []string, of cacheguard.Generations,
		) cacheguard.Generations {
			return of[min(1, len(of)):]
		}),
	},
	{
		name:   "generations of a value are as they were read first",
		caught: []string{"generations with a value"},
		mutate: func(b *broken) {
			kept := map[string]cacheguard.Generations{}
			onValue(func(
				_ *broken, _ cacheguard.Key, tags []string, of cacheguard.Generations,
			) cacheguard.Generations {
				in := strings.Join(tags, ",")
				if kept[in] == nil {
					kept[in] = of
				}
				return kept[in]
			})(b)
		},
	},
	{
		name:   "generations come with a value although nobody asked",
		caught: []string{"generations with a value"},
		mutate: onValue(func(
			b *broken, k cacheguard.Key, tags []string, _ cacheguard.Generations,
		) cacheguard.Generations {
			of, _ := b.Store.Generations(ctx, k.Cache, tags)
			return of
		}),
	},
	{
		name: "generations begin when a tag is asked for",
		caught: []string{
			"generations before any invalidation", "generations in the order asked for",
		},
		mutate: onGenerations(func(
			b *broken, cache string, tags []string, of cacheguard.Generations,
		) cacheguard.Generations {
			for i, tag := range tags {
				if of[1+i] == 0 {
					_, _ = b.Store.InvalidateTags(ctx, cache, []string{tag})
				}
			}
			return of
		}),
	},
	{
		name:   "generation of a cache is always the present",
		caught: []string{"generations before any invalidation"},
		mutate: onGenerations(func(
			b *broken, _ string, _ []string, of cacheguard.Generations,
		) cacheguard.Generations {
			of[0] = b.tick()
			return of
		}),
	},
	{
		name:   "generation of a new cache isn't known",
		caught: []string{"generations before any invalidation"},
		mutate: onGenerations(func(
			_ *broken, _ string, _ []string, of cacheguard.Generations,
		) cacheguard.Generations {
			of[0] = 0
			return of
		}),
	},
	{
		name: "generations are kept by a process for itself",
		caught: []string{
			"generations of tags that were invalidated", "generations where nobody listens",
			"generation of the whole cache",
		},
		mutate: func(b *broken) {
			tagging(func(cache string, tags []string) (string, []string) {
				return cache + string(rune('0'+b.process)), tags
			})(b)
		},
	},
	{
		name: "generations that a process knows are never asked for again",
		caught: []string{
			"generations of tags that were invalidated", "generations where nobody listens",
			"together: no generation that was read before is taken for the last",
		},
		mutate: func(b *broken) {
			kept := map[string]cacheguard.Generations{}
			b.generations = func(
				cache string, tags []string,
			) (of cacheguard.Generations, err error) {
				in := cache + strings.Join(tags, ",")
				b.locked(func() {
					if of = kept[in]; of == nil {
						of, err = b.Store.Generations(ctx, cache, tags)
						kept[in] = of
					}
				})
				return slices.Clone(of), err
			}
			b.invalidateTags = func(cache string, tags []string) (int64, error) {
				b.locked(func() { clear(kept) })
				return b.Store.InvalidateTags(ctx, cache, tags)
			}
		},
	},
	{
		name:   "generations that were read before an invalidation are kept after it",
		caught: []string{"together: no generation that was read before is taken for the last"},
		mutate: func(b *broken) {
			kept := map[string]cacheguard.Generations{}
			b.generations = func(
				cache string, tags []string,
			) (of cacheguard.Generations, err error) {
				in := cache + strings.Join(tags, ",")
				b.locked(func() { of = kept[in] })
				if of == nil {
					of, err = b.Store.Generations(ctx, cache, tags)
					<-time.After(time.Microsecond)
					b.locked(func() { kept[in] = of })
				}
				return slices.Clone(of), err
			}
			b.invalidateTags = func(cache string, tags []string) (int64, error) {
				<-time.After(time.Microsecond / 2)
				g, err := b.Store.InvalidateTags(ctx, cache, tags)
				b.locked(func() { clear(kept) })
				return g, err
			}
		},
	},
	{
		name:   "tags are cut at NUL",
		caught: []string{"generations of tags of any bytes"},
		mutate: eachTag(func(tag string) string {
			before, _, _ := strings.Cut(tag, "\x00")
			return before
		}),
	},
	{
		name:   "tags are cut at 254 bytes",
		caught: []string{"generations of tags of any bytes"},
		mutate: eachTag(func(tag string) string { return tag[:min(len(tag), 254)] }),
	},
	{
		name:   "tags are made UTF-8",
		caught: []string{"generations of tags of any bytes", "message of invalidated tags"},
		mutate: eachTag(func(tag string) string { return strings.ToValidUTF8(tag, "?") }),
	},
	{
		name:   "tags are trimmed",
		caught: []string{"generations of tags of any bytes"},
		mutate: eachTag(strings.TrimSpace),
	},
	{
		name:   "tags are written in small letters",
		caught: []string{"generations of tags of any bytes"},
		mutate: eachTag(strings.ToLower),
	},
	{
		name: "invalidation of tags is for the first one",
		caught: []string{
			"generations of tags that were invalidated", "message of invalidated tags",
		},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			return b.Store.InvalidateTags(ctx, cache, tags[:min(1, len(tags))])
		}),
	},
	{
		name:   "invalidation of tags is for the first 256",
		caught: []string{"generations of many tags", "message of many invalidated tags"},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			return b.Store.InvalidateTags(ctx, cache, tags[:min(256, len(tags))])
		}),
	},
	{
		name:   "invalidation of many tags says the time of the first ones",
		caught: []string{"generations of many tags", "message of many invalidated tags"},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			said, err := b.Store.InvalidateTags(ctx, cache, tags[:min(256, len(tags))])
			if len(tags) > 256 {
				_, err = b.Store.InvalidateTags(ctx, cache, tags[256:])
			}
			return said, err
		}),
	},
	{
		name:   "invalidation of many tags is one of the whole cache",
		caught: []string{"generations of many tags", "message of many invalidated tags"},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			if len(tags) > 256 {
				tags = nil
			}
			return b.Store.InvalidateTags(ctx, cache, tags)
		}),
	},
	{
		name: "invalidation of tags is one of the whole cache",
		caught: []string{
			"generations of tags that were invalidated", "message of invalidated tags",
			"generation of the whole cache",
		},
		mutate: onInvalidateTags(func(b *broken, cache string, _ []string) (int64, error) {
			return b.Store.InvalidateTags(ctx, cache, nil)
		}),
	},
	{
		name:   "invalidation of no tags invalidates nothing",
		caught: []string{"generation of the whole cache", "message of invalidated tags"},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			if len(tags) == 0 {
				return b.tick(), nil
			}
			return b.Store.InvalidateTags(ctx, cache, tags)
		}),
	},
	{
		name: "invalidation of tags works once",
		caught: []string{
			"generations of tags that were invalidated",
			"grants before and after an invalidation of tags",
		},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			of, _ := b.Store.Generations(ctx, cache, tags)
			if len(tags) > 0 && slices.Min(of) > 0 {
				return slices.Max(of), nil
			}
			return b.Store.InvalidateTags(ctx, cache, tags)
		}),
	},
	{
		name: "invalidation of tags returns another time than it stores",
		caught: []string{
			"generations of tags that were invalidated", "generation of the whole cache",
			"message of invalidated tags",
		},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			_, err := b.Store.InvalidateTags(ctx, cache, tags)
			return b.tick(), err
		}),
	},
	{
		name: "invalidation of tags counts instead of looking at the clock",
		caught: []string{
			"grants before and after an invalidation of tags", "generations of many tags",
		},
		mutate: func(b *broken) {
			n := int64(b.process)
			b.invalidateTags = func(cache string, tags []string) (int64, error) {
				n += 2
				_, err := b.Store.InvalidateTags(ctx, cache, tags)
				return n, err
			}
		},
	},
	{
		name:   "invalidation of tags ends leases",
		caught: []string{"invalidation of tags leaves values and leases"},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			var keys []cacheguard.Key
			b.locked(func() {
				for k := range b.grants {
					keys = append(keys, k)
				}
			})
			for _, k := range keys {
				_ = b.Store.Release(ctx, k, b.last(k).Token)
			}
			return b.Store.InvalidateTags(ctx, cache, tags)
		}),
	},
	{
		name:   "invalidation of tags removes values",
		caught: []string{"invalidation of tags leaves values and leases"},
		mutate: onInvalidateTags(func(b *broken, cache string, tags []string) (int64, error) {
			var keys []cacheguard.Key
			b.locked(func() {
				for k := range b.grants {
					keys = append(keys, k)
				}
			})
			_ = b.Store.Invalidate(ctx, keys)
			return b.Store.InvalidateTags(ctx, cache, tags)
		}),
	},
	{
		name: "grants have no stamp",
		caught: []string{
			"grants have a stamp", "generations before any invalidation",
			"many: leases of each kind",
		},
		mutate: onGrant(func(*broken, int64) int64 { return 0 }),
	},
	{
		name:   "claims have no stamp",
		caught: []string{"grants have a stamp", "grants before and after an invalidation of tags"},
		mutate: onClaim(func(*broken, int64) int64 { return 0 }),
	},
	{
		name:   "grants are stamped late",
		caught: []string{"grants before and after an invalidation of tags"},
		mutate: onGrant(func(_ *broken, stamp int64) int64 {
			return stamp + time.Second.Microseconds()
		}),
	},
	{
		name:   "claims are stamped late",
		caught: []string{"grants before and after an invalidation of tags"},
		mutate: onClaim(func(_ *broken, stamp int64) int64 {
			return stamp + time.Second.Microseconds()
		}),
	},
	{
		name:   "grants are stamped early",
		caught: []string{"grants before and after an invalidation of tags"},
		mutate: onGrant(func(_ *broken, stamp int64) int64 {
			return stamp - time.Second.Microseconds()
		}),
	},
	{
		name:   "grants are stamped in whole seconds",
		caught: []string{"grants before and after an invalidation of tags"},
		mutate: onGrant(func(_ *broken, stamp int64) int64 {
			return stamp / 1_000_000 * 1_000_000
		}),
	},
	{
		name:   "grants of one process are stamped by its own clock",
		caught: []string{"grants before and after an invalidation of tags"},
		mutate: onGrant(func(b *broken, stamp int64) int64 {
			return stamp - int64(b.process)*1_000_000
		}),
	},
	{
		name:   "grants of many keys are stamped late",
		caught: []string{"grants before and after an invalidation of tags"},
		mutate: onLeaseMany(func(
			b *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			for i := range replies {
				replies[i].Answer.Grant.Stamp += time.Second.Microseconds()
			}
		}),
	},
	{
		name:   "grants are known by their stamp",
		caught: []string{"grants have a stamp"},
		mutate: func(b *broken) {
			b.renew = func(
				k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
			) (cacheguard.Holding, error) {
				if last := b.last(k); last.Is(g) && last != g {
					return cacheguard.HoldingOther, nil
				}
				return b.Store.Renew(ctx, k, g, ttl)
			}
		},
	},
	{
		name:   "messages don't tell of invalidated tags",
		caught: []string{"message of invalidated tags", "message of many invalidated tags"},
		mutate: without(cacheguard.MessageTags),
	},
	{
		name:   "messages of invalidated tags reach their own process only",
		caught: []string{"message of invalidated tags"},
		mutate: func(b *broken) {
			if b.process == 1 {
				without(cacheguard.MessageTags)(b)
			}
		},
	},
	{
		name:   "messages don't say the generation",
		caught: []string{"message of invalidated tags", "message of many invalidated tags"},
		mutate: onTell(func(m *cacheguard.Message) bool {
			if m.Kind == cacheguard.MessageTags {
				m.Generation = 0
			}
			return true
		}),
	},
	{
		name:   "messages don't say which tags",
		caught: []string{"message of invalidated tags", "message of many invalidated tags"},
		mutate: onTell(func(m *cacheguard.Message) bool { m.Tags = nil; return true }),
	},
	{
		name:   "messages name the first 255 tags",
		caught: []string{"message of many invalidated tags"},
		mutate: onTell(func(m *cacheguard.Message) bool {
			m.Tags = m.Tags[:min(255, len(m.Tags))]
			return true
		}),
	},
	{
		name:   "messages of invalidated tags reach all caches",
		caught: []string{"message of invalidated tags of other caches"},
		mutate: func(b *broken) {
			b.listen = func(cache string, tell func(cacheguard.Message)) func() {
				return b.Store.Listen(cache, func(m cacheguard.Message) {
					if m.Kind == cacheguard.MessageTags {
						b.tellAll(m)
					} else {
						tell(m)
					}
				})
			}
		},
	},
	{
		name:   "listeners aren't told which invalidations they may have missed",
		caught: []string{"listener is told which invalidations it may have missed"},
		mutate: onTell(func(m *cacheguard.Message) bool {
			if m.Kind == cacheguard.MessageRestored {
				m.Generation = 0
			}
			return true
		}),
	},
	{
		name:   "listeners are told of a time long before they came",
		caught: []string{"listener is told which invalidations it may have missed"},
		mutate: onTell(func(m *cacheguard.Message) bool {
			if m.Kind == cacheguard.MessageRestored {
				m.Generation -= time.Second.Microseconds()
			}
			return true
		}),
	},
	{
		name:   "listeners aren't told what a break may have cost",
		caught: []string{"listener is told which invalidations it may have missed"},
		harm: func(f *storetest.Fleet, bs []*broken) {
			f.LoseMessages = func() {
				bs[0].tellAll(cacheguard.Message{Kind: cacheguard.MessageRestored})
			}
		},
	},
}
