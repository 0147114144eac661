package redisstore

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// FuzzDecodeMessage shows that any text on the channel is a message or is refused. A message is
// encoded again to the same text.
func FuzzDecodeMessage(f *testing.F) {
	k, load := cacheguard.Key{Cache: "test", Key: "k"}, cacheguard.ID{1, 2, 3}
	f.Add(encodeMessage(kindChanged, k, cacheguard.ID{}))
	f.Add(encodeMessage(kindFilled, k, load, []byte("a frame")...))
	f.Add(encodeMessage(kindOutcome, k, load, []byte("f\x00the error")...))
	f.Add(encodeMessage(kindOutcome, k, load, []byte("f\x04notethe error")...))
	f.Add(encodeMessage(kindOutcome, k, load, []byte("f\xffnote")...))
	f.Add(encodeMessage(kindOutcome, k, load, []byte("uthe frame")...))
	f.Add(encodeMessage(kindOutcome, k, load, []byte("p\x04note")...))
	f.Add(encodeMessage(kindOutcome, k, load, 'p'))
	f.Add(encodeMessage(kindOutcome, k, load, []byte("?of a later version")...))
	f.Add(encodeMessage(kindOutcome, k, load))
	f.Add(encodeMessage(kindReleased, cacheguard.Key{}, load))
	f.Add([]byte{})
	f.Add([]byte("c0123456789abcdef\xff\xffshort"))
	f.Fuzz(func(t *testing.T, b []byte) {
		cache, m, ok := decodeMessage(string(b))
		if !ok {
			return
		}
		var kind byte
		for letter, known := range messageKinds {
			if known == m.Kind {
				kind = letter
			}
		}
		var payload []byte
		switch m.Kind {
		case cacheguard.MessageFilled:
			payload = m.Frame
		case cacheguard.MessageOutcome:
			letter, rest := encodeOutcome(m.Outcome)
			payload = append([]byte{letter}, rest...)
		}
		again := encodeMessage(kind, cacheguard.Key{Cache: cache, Key: m.Key}, m.Load, payload...)
		// A change or a release has no payload, so additional bytes are lost.
		if !bytes.HasPrefix(b, again) {
			t.Errorf("%q was taken for %q", b, again)
		}
	})
}

// FuzzParseLease shows that every reply to the lease script is an answer or an error. The bytes
// choose the parts of the reply: nothing, a number, or a text.
func FuzzParseLease(f *testing.F) {
	part := func(s string) []byte { return append([]byte{2, byte(len(s))}, s...) }
	number := func(n int64) []byte { return binary.BigEndian.AppendUint64([]byte{1}, uint64(n)) }
	id := cacheguard.ID{1, 2, 3}.String()
	f.Add([]byte{})
	f.Add([]byte{0})
	f.Add(bytes.Join([][]byte{part("granted"), part("1700000000000000")}, nil))
	f.Add(bytes.Join([][]byte{part("granted"), part("no number")}, nil))
	f.Add(bytes.Join([][]byte{part("held"), part(id), number(3000)}, nil))
	f.Add(bytes.Join([][]byte{part("held"), part("somebody"), number(-1 << 63)}, nil))
	f.Add(bytes.Join([][]byte{part("value"), part("a frame")}, nil))
	f.Add(bytes.Join([][]byte{part("value")}, nil))
	f.Add(bytes.Join([][]byte{
		part("outcome"), part(id), number(1000), part("f"), part("\x04notethe error"),
	}, nil))
	f.Add(bytes.Join([][]byte{
		part("outcome"), part(id), number(1000), part("?"), part("of a later version"),
	}, nil))
	f.Add(bytes.Join([][]byte{part("outcome"), part(id), number(1000)}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		token := cacheguard.ID{9}
		ans, err := parseLease(replyOf(b), token)
		switch {
		case err != nil:
			return
		case ans.State == cacheguard.LeaseGranted && ans.Grant.Token != token:
			t.Errorf("a lease was granted to %v; want the asker %v", ans.Grant.Token, token)
		case ans.State == cacheguard.LeaseOutcome && ans.Outcome.Kind == 0:
			t.Error("an outcome has no kind")
		case ans.State != cacheguard.LeaseGranted && ans.Grant != (cacheguard.Grant{}):
			t.Errorf("what is no grant has one: %v", ans)
		}
	})
}

func replyOf(b []byte) (reply []any) {
	for len(b) > 0 {
		kind := b[0] % 3
		b = b[1:]
		switch {
		case kind == 1 && len(b) >= 8:
			reply = append(reply, int64(binary.BigEndian.Uint64(b)))
			b = b[8:]
		case kind == 2 && len(b) >= 1:
			n := min(int(b[0]), len(b)-1)
			reply = append(reply, string(b[1:1+n]))
			b = b[1+n:]
		default:
			reply = append(reply, nil)
		}
	}
	return reply
}

func TestParseLease(t *testing.T) {
	token, other := cacheguard.ID{9}, cacheguard.ID{1, 2, 3}
	for what, c := range map[string]struct {
		reply []any
		want  cacheguard.LeaseAnswer
	}{
		"granted": {
			[]any{"granted", "17"},
			cacheguard.LeaseAnswer{Grant: cacheguard.Grant{Token: token, Number: 17}},
		},
		"granted, and what was seen stands": {[]any{"granted", "17", int64(0), int64(1)},
			cacheguard.LeaseAnswer{
				Grant: cacheguard.Grant{Token: token, Number: 17}, Stands: true,
			}},
		"granted, with generations": {[]any{"granted", "17", int64(0), []any{"5", nil}},
			cacheguard.LeaseAnswer{
				Grant: cacheguard.Grant{Token: token, Number: 17}, Stands: true,
				Of: cacheguard.Generations{5, 0},
			}},
		"held": {[]any{"held", other.String(), int64(5)}, cacheguard.LeaseAnswer{
			State: cacheguard.LeaseHeld, Holder: other, Remaining: 5e6,
		}},
		"outcome of a later version": {[]any{"outcome", other.String(), int64(5), "?", "x"},
			cacheguard.LeaseAnswer{
				State: cacheguard.LeaseOutcome, Holder: other, Remaining: 5e6,
				Outcome: cacheguard.Outcome{Kind: cacheguard.OutcomeUnshared},
			}},
	} {
		if got, err := parseLease(c.reply, token); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, %v; want %v", what, got, err, c.want)
		}
	}
	for _, reply := range [][]any{
		nil, {}, {nil}, {int64(1)}, {"granted"}, {"granted", int64(17)}, {"granted", ""},
		{"something else"},
	} {
		if got, err := parseLease(reply, token); err == nil {
			t.Errorf("%v was taken for %v; want an error", reply, got)
		}
	}
}
