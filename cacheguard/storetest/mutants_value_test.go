package storetest_test

import (
	"context"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// onStore makes a mutant that changes each frame, or its TTL, before it is stored.
func onStore(
	change func(b *broken, k cacheguard.Key, f []byte, ttl time.Duration) ([]byte, time.Duration),
) func(*broken) {
	return func(b *broken) {
		b.fill = func(
			k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
		) (cacheguard.FillAnswer, error) {
			f, ttl = change(b, k, f, ttl)
			return b.Store.Fill(ctx, k, g, f, ttl)
		}
	}
}

// onGet makes a mutant that changes each frame that is read.
func onGet(change func(f []byte) []byte) func(*broken) {
	return func(b *broken) {
		b.get = func(k cacheguard.Key) ([]byte, error) {
			f, _, err := b.Store.Get(ctx, k, nil)
			if f != nil {
				f = change(f)
			}
			return f, err
		}
	}
}

// renamed is a store that uses other names for keys.
type renamed struct {
	cacheguard.Store
	rename func(k cacheguard.Key) cacheguard.Key
}

func (r renamed) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	return r.Store.Get(ctx, r.rename(k), tags)
}

func (r renamed) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	return r.Store.Lease(ctx, r.rename(k), ask)
}

func (r renamed) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	return r.Store.Fill(ctx, r.rename(k), g, f, ttl)
}

func (r renamed) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (cacheguard.Grant, error) {
	return r.Store.Claim(ctx, r.rename(k), token, ttl)
}

func (r renamed) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	for _, k := range keys {
		if err := r.Store.Invalidate(ctx, []cacheguard.Key{r.rename(k)}); err != nil {
			return err
		}
	}
	return nil
}

// naming makes a mutant that breaks the names of keys.
func naming(rename func(k cacheguard.Key) cacheguard.Key) func(*broken) {
	return func(b *broken) { b.Store = renamed{b.Store, rename} }
}

var valueMutants = []mutant{
	{
		name: "processes share nothing",
		caught: []string{
			"lease is granted once", "claim removes the value",
			"fill of an undisturbed load is stored",
		},
		mutate: func(b *broken) {
			b.Store = renamed{b.Store, func(k cacheguard.Key) cacheguard.Key {
				k.Key += string(rune('0' + b.process))
				return k
			}}
		},
	},
	{
		name:   "keys are cut at NUL",
		caught: []string{"keys of any bytes", "keys of several caches"},
		mutate: naming(func(k cacheguard.Key) cacheguard.Key {
			k.Key, _, _ = strings.Cut(k.Key, "\x00")
			return k
		}),
	},
	{
		name:   "keys are cut at 255 bytes",
		caught: []string{"keys of any bytes"},
		mutate: naming(func(k cacheguard.Key) cacheguard.Key {
			k.Key = k.Key[:min(len(k.Key), 255)]
			return k
		}),
	},
	{
		name:   "keys are made UTF-8",
		caught: []string{"keys of any bytes", "keys of one byte"},
		mutate: naming(func(k cacheguard.Key) cacheguard.Key {
			k.Key = strings.ToValidUTF8(k.Key, "?")
			return k
		}),
	},
	{
		name:   "keys are trimmed",
		caught: []string{"keys of any bytes", "keys of one byte"},
		mutate: naming(func(k cacheguard.Key) cacheguard.Key {
			k.Key = strings.TrimSpace(k.Key)
			return k
		}),
	},
	{
		name:   "keys have their braces written in another way",
		caught: []string{"keys of any bytes"},
		mutate: naming(func(k cacheguard.Key) cacheguard.Key {
			k.Key = strings.NewReplacer("{", "%7B", "}", "%7D").Replace(k.Key)
			return k
		}),
	},
	{
		name:   "keys are joined with the cache's name",
		caught: []string{"keys of several caches"},
		mutate: naming(func(k cacheguard.Key) cacheguard.Key {
			return cacheguard.Key{Key: k.Cache + ":" + k.Key}
		}),
	},
	{
		name:   "leases stand where the value of another key does",
		caught: []string{"keys of any bytes"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				answer, err := b.Store.Lease(ctx, k, ask)
				if answer.State == cacheguard.LeaseGranted {
					k.Key += ":lease"
					_ = put(b.Store, k, ask.Token[:], ask.TTL)
				}
				return answer, err
			}
		},
	},
	{
		name:   "value that is absent is empty",
		caught: []string{"value absent"},
		mutate: func(b *broken) {
			b.get = func(k cacheguard.Key) ([]byte, error) {
				f, _, err := b.Store.Get(ctx, k, nil)
				return append([]byte{}, f...), err
			}
		},
	},
	{
		name:   "value that is empty is absent",
		caught: []string{"value of any size", "value of a wrong type"},
		mutate: onGet(func(f []byte) []byte {
			if len(f) == 0 {
				return nil
			}
			return f
		}),
	},
	{
		name:   "value of some words is absent",
		caught: []string{"value of any bytes"},
		mutate: onGet(func(f []byte) []byte {
			if s := string(f); s == "null" || s == "nil" || s == "-1" {
				return nil
			}
			return f
		}),
	},
	{
		name:   "value is cut at 1 MiB",
		caught: []string{"value of any size"},
		mutate: onStore(func(
			_ *broken, _ cacheguard.Key, f []byte, ttl time.Duration,
		) ([]byte, time.Duration) {
			return f[:min(len(f), 1<<20)], ttl
		}),
	},
	{
		name:   "value of a token is taken for a lease",
		caught: []string{"value of any bytes"},
		mutate: onLease(func(
			b *broken, k cacheguard.Key, ask cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			if v, _, _ := b.Store.Get(ctx, k, nil); strings.Contains(string(v),
				string(ask.Token[:])) {
				_ = b.Store.Release(ctx, k, ask.Token)
				*answer = cacheguard.LeaseAnswer{
					State: cacheguard.LeaseHeld, Holder: ask.Token, Remaining: time.Second,
				}
			}
		}),
	},
	{
		name:   "value is the caller's own buffer",
		caught: []string{"value is a copy"},
		mutate: func(b *broken) {
			onStore(func(
				b *broken, k cacheguard.Key, f []byte, ttl time.Duration,
			) ([]byte, time.Duration) {
				b.locked(func() { b.kept[k] = f })
				return f, ttl
			})(b)
			b.get = func(k cacheguard.Key) ([]byte, error) {
				f, _, err := b.Store.Get(ctx, k, nil)
				b.locked(func() {
					if f != nil {
						f = b.kept[k]
					}
				})
				return f, err
			}
		},
	},
	{
		name:   "value is read from the store's own buffer",
		caught: []string{"value belongs to its reader"},
		mutate: func(b *broken) {
			b.get = func(k cacheguard.Key) ([]byte, error) {
				f, _, err := b.Store.Get(ctx, k, nil)
				b.locked(func() {
					if f != nil && b.kept[k] == nil {
						b.kept[k] = f
					}
				})
				return b.kept[k], err
			}
		},
	},
	{
		name:   "value is read into a buffer that is used again",
		caught: []string{"value belongs to its reader"},
		mutate: func(b *broken) {
			var buffer []byte
			b.get = func(k cacheguard.Key) ([]byte, error) {
				f, _, err := b.Store.Get(ctx, k, nil)
				if f == nil {
					return nil, err
				}
				b.locked(func() {
					buffer = append(buffer[:0], f...)
					f = buffer
				})
				return f, err
			}
		},
	},
	{
		name:   "value lives for whole seconds, rounded down",
		caught: []string{"value lives until its expiry"},
		mutate: onStore(func(
			_ *broken, _ cacheguard.Key, f []byte, ttl time.Duration,
		) ([]byte, time.Duration) {
			return f, ttl.Truncate(time.Second)
		}),
	},
	{
		name:   "value lives for whole seconds, rounded up",
		caught: []string{"value expires", "filled value expires"},
		mutate: onStore(func(
			_ *broken, _ cacheguard.Key, f []byte, ttl time.Duration,
		) ([]byte, time.Duration) {
			return f, (ttl + time.Second - 1).Truncate(time.Second)
		}),
	},
	{
		name:   "value lives for ever",
		caught: []string{"value expires", "filled value expires"},
		mutate: onStore(func(
			_ *broken, _ cacheguard.Key, f []byte, _ time.Duration,
		) ([]byte, time.Duration) {
			return f, 1 << 62
		}),
	},
	{
		name:   "clock is each process' own",
		caught: []string{"clock is the same in each process"},
		mutate: func(b *broken) {
			b.now = func() time.Time {
				return b.Store.Now().Add(time.Duration(b.process) * time.Hour)
			}
		},
	},
	{
		name:   "clock stands still",
		caught: []string{"clock goes on"},
		mutate: func(b *broken) {
			at := b.Store.Now()
			b.now = func() time.Time { return at }
		},
	},
	{
		name:   "clock says an earlier time",
		caught: []string{"clock comes between the grants before and after it"},
		mutate: func(b *broken) {
			b.clock = func(cache string) (int64, error) {
				said, err := b.Store.Clock(ctx, cache)
				return said - time.Minute.Microseconds(), err
			}
		},
	},
	{
		name:   "clock says a later time",
		caught: []string{"clock comes between the grants before and after it"},
		mutate: func(b *broken) {
			b.clock = func(cache string) (int64, error) {
				said, err := b.Store.Clock(ctx, cache)
				return said + time.Minute.Microseconds(), err
			}
		},
	},
	{
		name:   "clock runs backwards",
		caught: []string{"clock doesn't run backwards"},
		mutate: func(b *broken) {
			at := b.Store.Now()
			b.now = func() time.Time {
				b.locked(func() { at = at.Add(-time.Second) })
				return at
			}
		},
	},
}
