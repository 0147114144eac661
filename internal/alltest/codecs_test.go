package alltest

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/msgpackcodec"
	"github.com/cacheguard/cacheguard/cacheguard/protocodec"
)

// note is a value that all codecs can store.
type note = *wrapperspb.StringValue

// unnamed is a codec without a name.
type unnamed struct{ codec cacheguard.Codec[note] }

func (u unnamed) Append(dst []byte, v note) ([]byte, error) { return u.codec.Append(dst, v) }
func (u unnamed) Decode(src []byte) (note, error)           { return u.codec.Decode(src) }

// observing is an Observer.
type observing func(cacheguard.Event)

func (o observing) Observe(_ context.Context, e cacheguard.Event) { o(e) }

// openOn opens a cache as a process of a fleet does. All caches that are opened on one store are
// one fleet.
func openOn[V any](
	t *testing.T, store cacheguard.Store, opts cacheguard.Options[V],
) *cacheguard.Cache[V] {
	t.Helper()
	if opts.Name == "" {
		opts.Name = "notes"
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	c, err := cacheguard.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// gives checks what a Get answers if a load of the key returns loaded.
func gives[V comparable](t *testing.T, c *cacheguard.Cache[V], key string, loaded, want V) {
	t.Helper()
	got, err := c.Get(t.Context(), key, func(context.Context) (V, error) { return loaded, nil })
	if got != want || err != nil {
		t.Errorf("Get(%q) gives %v, %v; want %v", key, got, err, want)
	}
}

// noteCodecs are all codecs, those that read each other's bytes under one name.
func noteCodecs(t *testing.T) (names []string, codecs []cacheguard.Codec[note]) {
	t.Helper()
	add := func(name string, c cacheguard.Codec[note]) {
		for _, a := range []compresscodec.Algorithm{compresscodec.S2, compresscodec.Zstd} {
			over, err := compresscodec.New(compresscodec.Options[note]{Inner: c, Algorithm: a})
			if err != nil {
				t.Fatal(err)
			}
			names, codecs = append(names, "compressed "+name), append(codecs, over)
		}
		names, codecs = append(names, name), append(codecs, c)
	}
	add("JSON", cacheguard.JSON[note]{})
	add("MessagePack", msgpackcodec.Codec[note]{})
	add("Protocol Buffers", protocodec.Codec[note]{})
	add("no name", unnamed{cacheguard.JSON[note]{}})
	return names, codecs
}

// TestCodecChanges: what another codec wrote is a miss that is loaded again, in both directions,
// and never an error nor another value; what the same one wrote, compressed by whatever algorithm,
// is a hit.
func TestCodecChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, codecs := noteCodecs(t)
		for _, text := range []string{"short", strings.Repeat("a long one, ", 1000)} {
			for i, writes := range codecs {
				for j, reads := range codecs {
					store := memstore.New(memstore.Options{})
					corrupt := 0
					observer := observing(func(e cacheguard.Event) {
						switch e.Kind {
						case cacheguard.EventCorrupt:
							corrupt++
						case cacheguard.EventStoreError, cacheguard.EventNotStored:
							t.Errorf("%s, then %s: %v, %v", names[i], names[j], e.Kind, e.Err)
						}
					})
					before := openOn(t, store,
						cacheguard.Options[note]{Codec: writes, Observer: observer})
					after := openOn(t, store,
						cacheguard.Options[note]{Codec: reads, Observer: observer})
					get := func(c *cacheguard.Cache[note], loaded string) (string, int) {
						loads := 0
						v, err := c.Get(t.Context(), "k", func(context.Context) (note, error) {
							loads++
							return wrapperspb.String(loaded), nil
						})
						if err != nil {
							t.Errorf("%s, then %s: %v", names[i], names[j], err)
						}
						return v.GetValue(), loads
					}

					get(before, text)
					got, loads := get(after, text+" anew")
					want, misses := text, 0
					if names[i] != names[j] {
						want, misses = text+" anew", 1
					}
					if got != want || loads != misses || min(corrupt, 1) != misses {
						t.Errorf("%s, then %s: %.20q... after %d loads, %d times corrupt; want %d loads",
							names[i], names[j], got, loads, corrupt, misses)
					}
					if again, loads := get(after, "unexpected"); again != want || loads != 0 {
						t.Errorf("%s, then %s: %.20q... after %d more loads; want none", names[i],
							names[j], again, loads)
					}
					if back, loads := get(before, want); back != want || loads != misses {
						t.Errorf("%s, then %s, and back: %.20q... after %d loads; want %d",
							names[i], names[j], back, loads, misses)
					}
				}
			}
		}
	})
}

// TestBytesACodecCantRead are a miss too when the name says that it could: V has changed, a bound
// is lower, or the codec panics.
func TestBytesACodecCantRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large, err := compresscodec.New(compresscodec.Options[string]{})
		if err != nil {
			t.Fatal(err)
		}
		small, err := compresscodec.New(compresscodec.Options[string]{MaxDecoded: 2000})
		if err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("long ", 1000)

		store := memstore.New(memstore.Options{})
		gives(t, openOn(t, store, cacheguard.Options[string]{Codec: large}), "k", long, long)
		gives(t, openOn(t, store, cacheguard.Options[string]{Codec: small}), "k", "short", "short")
		gives(t, openOn(t, store, cacheguard.Options[string]{Codec: large}), "k", "unexpected",
			"short")

		// What can't be read could not be stored either.
		gives(t, openOn(t, store, cacheguard.Options[string]{Codec: small}), "large", long, long)
		gives(t, openOn(t, store, cacheguard.Options[string]{Codec: small}), "large", "short",
			"short")

		texts := openOn(t, store,
			cacheguard.Options[string]{Name: "n", Codec: msgpackcodec.Codec[string]{}})
		numbers := openOn(t, store,
			cacheguard.Options[int]{Name: "n", Codec: msgpackcodec.Codec[int]{}})
		gives(t, texts, "k", "text", "text")
		gives(t, numbers, "k", 5, 5)
		gives(t, texts, "k", "anew", "anew")

		panics := openOn(t, store, cacheguard.Options[string]{Name: "n", Codec: panicsOnRead{}})
		gives(t, panics, "k", "fine", "fine")
	})
}

// panicsOnRead is MessagePack by its name.
type panicsOnRead struct{ msgpackcodec.Codec[string] }

func (panicsOnRead) Decode([]byte) (string, error) { panic("these bytes") }
