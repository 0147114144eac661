package cacheguard_test

import (
	"context"
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
	inBubble(t, "", func(t *testing.T) {
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
					before := openOn(t, store, cacheguard.Options[note]{Codec: writes, Observer: observer})
					after := openOn(t, store, cacheguard.Options[note]{Codec: reads, Observer: observer})
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
						t.Errorf("%s, then %s: %.20q... after %d loads, %d times corrupt; want %d loads", names[i], names[j], got, loads, corrupt, misses)
					}
					if again, loads := get(after, "unexpected"); again != want || loads != 0 {
						t.Errorf("%s, then %s: %.20q... after %d more loads; want none", names[i], names[j], again, loads)
					}
					if back, loads := get(before, want); back != want || loads != misses {
						t.Errorf("%s, then %s, and back: %.20q... after %d loads; want %d", names[i], names[j], back, loads, misses)
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
		getting(t.Context(), t, openOn(t, store, cacheguard.Options[string]{Codec: large}), "k", returning(long)).gives(long, nil)
		getting(t.Context(), t, openOn(t, store, cacheguard.Options[string]{Codec: small}), "k", returning("short")).gives("short", nil)
		getting(t.Context(), t, openOn(t, store, cacheguard.Options[string]{Codec: large}), "k", returning("unexpected")).gives("short", nil)

		// What can't be read could not be stored either.
		getting(t.Context(), t, openOn(t, store, cacheguard.Options[string]{Codec: small}), "large", returning(long)).gives(long, nil)
		getting(t.Context(), t, openOn(t, store, cacheguard.Options[string]{Codec: small}), "large", returning("short")).gives("short", nil)

		texts := openOn(t, store, cacheguard.Options[string]{Name: "n", Codec: msgpackcodec.Codec[string]{}})
		numbers := openOn(t, store, cacheguard.Options[int]{Name: "n", Codec: msgpackcodec.Codec[int]{}})
		getting(t.Context(), t, texts, "k", returning("text")).gives("text", nil)
		getting(t.Context(), t, numbers, "k", returning(5)).gives(5, nil)
		getting(t.Context(), t, texts, "k", returning("anew")).gives("anew", nil)

		panics := openOn(t, store, cacheguard.Options[string]{Name: "n", Codec: panicsOnRead{}})
		getting(t.Context(), t, panics, "k", returning("fine")).gives("fine", nil)
	})
}

// panicsOnRead is MessagePack by its name.
type panicsOnRead struct{ msgpackcodec.Codec[string] }

func (panicsOnRead) Decode([]byte) (string, error) { panic("these bytes") }
