package redisstore

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// FuzzInspect shows that Inspect makes a report of every entry in Redis. The report can be printed
// as text and as JSON, and doesn't contradict itself.
func FuzzInspect(f *testing.F) {
	now := time.UnixMicro(1_800_000_000_000_000)
	h := frame.Header{
		ID: [16]byte{1}, Created: now.Add(-time.Minute), Soft: time.Hour, Revalidate: time.Hour,
		IfError: time.Hour, Stamp: now.UnixMicro() - 60e6,
		Extension: frame.Extension{Note: []byte("note"), Tags: frame.Tags("\x03tag\x05\x00soft")},
	}
	record := encodeRecord(cacheguard.ID{1}, time.Hour, time.Minute,
		cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "no\x00\x01", Failures: 2})
	f.Add(frame.New(h, []byte("body")), "-0123456789abcdef0123456789abcdef1700000000000000",
		"3 0123 4567", "1700000000000000", int64(5e9), int64(0), int64(1))
	f.Add(frame.Remnant(frame.New(h, nil)), string(record), "*", "", int64(-1), int64(1.8e15),
		int64(1.9e15))
	f.Add([]byte{}, "", "", "+1", int64(-2), int64(-1), int64(1<<62))
	f.Fuzz(func(
		t *testing.T, value []byte, lease, waiters, whole string, left, generation, tag int64,
	) {
		there := entry{b: value, left: time.Duration(left)}
		seen := []sight{
			{
				now: now, value: there, lease: entry{b: []byte(lease), left: there.left},
				waiters: entry{b: []byte(waiters), left: there.left}, whole: whole,
			},
			{
				now: now, value: entry{foreign: true}, lease: entry{foreign: true},
				waiters: entry{foreign: true},
			},
		}
		// The checksum is set, so that more of the tried entries are values.
		sealed := append(frame.Room(h.Extension), value...)
		frame.Seal(sealed, frame.Header{
			Created: time.UnixMicro(generation), Soft: time.Duration(tag), Stamp: max(left, 0),
			Marked: time.UnixMicro(tag),
		})
		seen = append(seen, sight{
			now: now, value: entry{b: sealed, left: there.left}, whole: whole,
			scores: generationsOf([]float64{float64(generation), float64(tag), 0}),
		})
		for _, found := range seen {
			if h, _, err := frame.Parse(found.value.b); err == nil && found.scores != nil &&
				len(found.scores) != 1+len(h.Tags.All()) {
				found.scores = nil
			}
			i := found.judged()
			text := i.String()
			if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
				return r != '\n' && !unicode.IsPrint(r)
			}) {
				t.Errorf("not for people: %q", text)
			}
			if _, err := json.Marshal(i); err != nil {
				t.Error(err)
			}
			if i.State == "" || len(i.Why) == 0 || i.Why[0] == "" {
				t.Errorf("it says nothing: %+v", i)
			}
			_, _, err := frame.Parse(found.value.b)
			if readable := i.State != StateUnreadable && i.State != StateRemnant &&
				i.State != StateAbsent; readable != (err == nil) {
				t.Errorf("%s, and the frame says %v", i.State, err)
			}
		}
	})
}
