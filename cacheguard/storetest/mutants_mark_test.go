package storetest_test

import (
	"bytes"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// onMark makes a mutant that calls change in place of a mark.
func onMark(
	change func(b *broken, keys []cacheguard.Key, at int, mark []byte) error,
) func(*broken) {
	return func(b *broken) {
		b.markStale = func(keys []cacheguard.Key, at int, mark []byte) error {
			return change(b, keys, at, mark)
		}
	}
}

// writing makes a mutant that marks by reading a value and writing it again, with the TTL ttl.
func writing(ttl time.Duration, change func(f []byte, at int, mark []byte) []byte) func(*broken) {
	return onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
		for _, k := range keys {
			f, _, _ := b.Store.Get(ctx, k, nil)
			if err := b.Store.Invalidate(ctx, []cacheguard.Key{k}); err != nil {
				return err
			}
			if f = change(f, at, mark); f != nil {
				if err := put(b.Store, k, f, ttl); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

var markMutants = []mutant{
	{
		name: "mark is not written",
		caught: []string{
			"mark is written into the value", "mark of any bytes at any place",
			"mark of several keys",
		},
		mutate: writing(time.Hour, func(f []byte, _ int, _ []byte) []byte { return f }),
	},
	{
		name:   "mark is written over another",
		caught: []string{"mark that is there stays"},
		mutate: writing(time.Hour, func(f []byte, at int, mark []byte) []byte {
			if len(f) >= at+len(mark) {
				copy(f[at:], mark)
			}
			return f
		}),
	},
	{
		name:   "mark is written where it begins with zero",
		caught: []string{"mark that is there stays"},
		mutate: writing(time.Hour, func(f []byte, at int, mark []byte) []byte {
			if len(f) >= at+len(mark) && f[at] == 0 {
				copy(f[at:], mark)
			}
			return f
		}),
	},
	{
		name:   "mark is written one byte too late",
		caught: []string{"mark is written into the value", "mark of any bytes at any place"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			return b.Store.MarkStale(ctx, keys, at+1, mark)
		}),
	},
	{
		name:   "mark is cut at NUL",
		caught: []string{"mark is written into the value", "mark of any bytes at any place"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			before, _, _ := bytes.Cut(mark, []byte{0})
			return b.Store.MarkStale(ctx, keys, at, before)
		}),
	},
	{
		name:   "mark makes a value longer",
		caught: []string{"mark finds no room"},
		mutate: writing(time.Hour, func(f []byte, at int, mark []byte) []byte {
			if f != nil && len(f) < at+len(mark) {
				return append(append(f, make([]byte, max(0, at-len(f)))...)[:at], mark...)
			}
			return f
		}),
	},
	{
		name:   "mark is a value of its own",
		caught: []string{"mark of what isn't there", "mark of several keys"},
		mutate: writing(time.Hour, func(f []byte, at int, mark []byte) []byte {
			if f == nil {
				return append(make([]byte, at), mark...)
			}
			return f
		}),
	},
	{
		name: "mark removes the value",
		caught: []string{
			"mark is written into the value", "mark that is there stays",
			"mark leaves the value's time",
		},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, _ int, _ []byte) error {
			return b.Store.Invalidate(ctx, keys)
		}),
	},
	{
		name:   "mark removes what has a wrong type",
		caught: []string{"mark of a wrong type"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			for _, k := range keys {
				if f, _, _ := b.Store.Get(ctx, k, nil); f != nil && len(f) == 0 {
					_ = b.Store.Invalidate(ctx, []cacheguard.Key{k})
				}
			}
			return b.Store.MarkStale(ctx, keys, at, mark)
		}),
	},
	{
		name:   "mark of a wrong type fails",
		caught: []string{"mark of a wrong type"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			failed := cacheguard.KeyErrors{}
			for _, k := range keys {
				if f, _, _ := b.Store.Get(ctx, k, nil); f != nil && len(f) == 0 {
					failed[k.Key] = errBeside
				}
			}
			if len(failed) > 0 {
				return failed
			}
			return b.Store.MarkStale(ctx, keys, at, mark)
		}),
	},
	{
		name:   "mark of what is absent fails",
		caught: []string{"mark of what isn't there", "mark of several keys"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			for _, k := range keys {
				if f, _, _ := b.Store.Get(ctx, k, nil); f == nil {
					return cacheguard.KeyErrors{k.Key: errBeside}
				}
			}
			return b.Store.MarkStale(ctx, keys, at, mark)
		}),
	},
	{
		name:   "mark is for the whole cache",
		caught: []string{"mark leaves other keys"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			all := slices.Clone(keys)
			b.locked(func() {
				for k := range b.grants {
					all = append(all, k)
				}
			})
			return b.Store.MarkStale(ctx, all, at, mark)
		}),
	},
	{
		name:   "mark is for the first key",
		caught: []string{"mark of several keys", "mark ends the lease", "message of a mark"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			return b.Store.MarkStale(ctx, keys[:min(1, len(keys))], at, mark)
		}),
	},
	{
		name:   "mark takes all keys for those of one cache",
		caught: []string{"mark of several keys"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			keys = slices.Clone(keys)
			for i := range keys {
				keys[i].Cache = keys[0].Cache
			}
			return b.Store.MarkStale(ctx, keys, at, mark)
		}),
	},
	{
		name:   "mark is written into what was read before",
		caught: []string{"mark is not seen in what was read before"},
		mutate: func(b *broken) {
			b.get = func(k cacheguard.Key) ([]byte, error) {
				f, _, err := b.Store.Get(ctx, k, nil)
				b.locked(func() { b.kept[k] = f })
				return f, err
			}
			onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
				for _, k := range keys {
					copy(b.kept[k][at:], mark)
				}
				return b.Store.MarkStale(ctx, keys, at, mark)
			})(b)
		},
	},
	{
		name:   "mark keeps the lease",
		caught: []string{"mark ends the lease"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			for _, k := range keys {
				before := b.alive(k)
				if err := b.Store.MarkStale(ctx, []cacheguard.Key{k}, at, mark); err != nil {
					return err
				}
				b.revive(k, before)
			}
			return nil
		}),
	},
	{
		name:   "mark keeps the outcome",
		caught: []string{"mark removes the outcome"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			for _, k := range keys {
				defer b.restore(k)
			}
			return b.Store.MarkStale(ctx, keys, at, mark)
		}),
	},
	{
		name:   "mark makes the value live longer",
		caught: []string{"mark leaves the value's time"},
		mutate: writing(time.Hour, writeMark),
	},
	{
		name:   "mark makes the value live shorter",
		caught: []string{"mark leaves the value's time"},
		mutate: writing(time.Millisecond, writeMark),
	},
	{
		name:   "mark tells nobody",
		caught: []string{"message of a mark"},
		mutate: func(b *broken) {
			quiet := false
			b.listen = func(cache string, tell func(cacheguard.Message)) func() {
				return b.Store.Listen(cache, func(m cacheguard.Message) {
					if !quiet {
						tell(m)
					}
				})
			}
			onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
				quiet = true
				defer func() { quiet = false }()
				return b.Store.MarkStale(ctx, keys, at, mark)
			})(b)
		},
	},
	{
		name:   "mark tells if there was a value",
		caught: []string{"message of a mark"},
		mutate: onMark(func(b *broken, keys []cacheguard.Key, at int, mark []byte) error {
			var there []cacheguard.Key
			for _, k := range keys {
				if f, _, _ := b.Store.Get(ctx, k, nil); f != nil {
					there = append(there, k)
				}
			}
			return b.Store.MarkStale(ctx, there, at, mark)
		}),
	},
}

// writeMark returns the frame with the mark written into it.
func writeMark(f []byte, at int, mark []byte) []byte {
	if len(f) >= at+len(mark) && bytes.Equal(f[at:at+len(mark)], make([]byte, len(mark))) {
		copy(f[at:], mark)
	}
	return f
}
