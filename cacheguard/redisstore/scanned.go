package redisstore

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Scanned is the result of [Store.Scan]. In its JSON durations are integers of nanoseconds, in
// members whose names end in _ns.
type Scanned struct {
	Cache string `json:"cache"`
	// Everything was scanned: neither the limit nor the context ended the scan.
	Whole bool `json:"whole"`

	Values  int           `json:"values"`
	Bytes   int64         `json:"bytes"`   // bytes of values, without Redis' overhead
	Largest int64         `json:"largest"` // bytes of the largest value
	States  map[State]int `json:"states"`  // number of values in each state
	// Fresh and stale values that say "does not exist".
	NotFound int `json:"not_found"`
	// Values of more than 4 KiB that were not read to their end, so their checksum wasn't verified.
	Unchecked int          `json:"unchecked"`
	Leases    int          `json:"leases"`          // leases of loads under way
	Records   int          `json:"records"`         // records of loads that left no value
	Newer     int          `json:"newer"`           // values of later programs
	Hash      string       `json:"hash,omitempty"`  // beginning of the hash that was looked for
	Found     []string     `json:"found,omitempty"` // keys with this hash
	Ages      []ScanBucket `json:"ages"`            // ages of the values that can be read
	// The found hashes of keys of which Redis has only the hash: keys of more than 512 bytes, or
	// beginning with #sha256:
	Hashed  []string `json:"hashed,omitempty"`
	foreign int      // entries under the names of leases that are neither leases nor records
	// Times until Redis removes the values; a value without an end is in the last bucket.
	Lifetimes []ScanBucket `json:"lifetimes"`
}

// ScanBucket counts durations below its bound that are not below the bound of the previous bucket.
type ScanBucket struct {
	Below time.Duration `json:"below_ns"` // 0 in the last bucket, which has no bound
	Count int           `json:"count"`
}

var scanBounds = []time.Duration{
	time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour,
	24 * time.Hour, 7 * 24 * time.Hour, 0,
}

func newBuckets() []ScanBucket {
	all := make([]ScanBucket, len(scanBounds))
	for n, below := range scanBounds {
		all[n].Below = below
	}
	return all
}

// countIn adds one to the bucket of a duration. A negative duration means for ever.
func countIn(all []ScanBucket, d time.Duration) {
	for n, b := range all {
		if b.Below == 0 || d >= 0 && d < b.Below {
			all[n].Count++
			return
		}
	}
}

// String returns a report of some lines for people.
func (sc Scanned) String() string {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	part := "all of it"
	if !sc.Whole {
		part = "a part of it"
	}
	fmt.Fprintf(w, "cache\t%q, %s\n", sc.Cache, part)
	fmt.Fprintf(w, "values\t%d, of %d bytes, the largest %d\n", sc.Values, sc.Bytes, sc.Largest)
	for _, state := range states {
		if n := sc.States[state]; n > 0 {
			fmt.Fprintf(w, "  %s\t%s\n", state, share(n, sc.Values))
		}
	}
	if sc.NotFound > 0 {
		fmt.Fprintf(w, "  does not exist\t%s, fresh or stale\n", share(sc.NotFound, sc.Values))
	}
	if sc.Unchecked > 0 {
		fmt.Fprintf(w, "unchecked\t%d of more than %d bytes, by their header only\n", sc.Unchecked,
			scanHead)
	}
	fmt.Fprintf(w, "leases\t%d loads under way, %d records of loads that left no value\n",
		sc.Leases, sc.Records)
	if sc.Newer > 0 {
		fmt.Fprintf(w, "newer\t%d values of later programs\n", sc.Newer)
	}
	if sc.foreign > 0 {
		fmt.Fprintf(w, "foreign\t%d entries under the names of leases are not cacheguard's\n",
			sc.foreign)
	}
	for _, key := range sc.Found {
		fmt.Fprintf(w, "found\t%q\n", key)
	}
	for _, hash := range sc.Hashed {
		fmt.Fprintf(w,
			"found\ta key of which Redis has only the hash %s: it has more than 512 bytes, or looks like a hash itself\n",
			hash)
	}
	switch {
	case sc.Whole && sc.Values+sc.Leases+sc.Records+sc.Newer+sc.foreign == 0:
		fmt.Fprintf(w,
			"\tnothing is stored of a cache of this name: is it Options.Name, and is the prefix right?\n")
	case sc.Hash != "" && len(sc.Found)+len(sc.Hashed) == 0:
		fmt.Fprintf(w, "hash\tno key that stands here now has one that begins with %s\n", sc.Hash)
	}
	_ = w.Flush()
	histogram(&text, "age", sc.Ages)
	histogram(&text, "lifetime left in Redis", sc.Lifetimes)
	return text.String()
}

// states are the states that a scan counts, in the order of the report.
var states = []State{
	StateFresh, StateStale, StateOnError, StateExpired, StateInvalid, StateUnshared, StateRemnant,
	StateUnreadable,
}

func share(n, of int) string { return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(of)) }

// histogram writes a line for each bucket, up to the last bucket that isn't empty.
func histogram(text *bytes.Buffer, what string, all []ScanBucket) {
	most, last := 0, -1
	for n, b := range all {
		if most = max(most, b.Count); b.Count > 0 {
			last = n
		}
	}
	if last < 0 {
		return
	}
	const width = 40
	fmt.Fprintf(text, "%s\n", what)
	for _, b := range all[:last+1] {
		bound := "longer, or for ever"
		if b.Below > 0 {
			bound = "below " + brief(b.Below)
		}
		bar := strings.Repeat("#", (width*b.Count+most-1)/most)
		fmt.Fprintln(text,
			strings.TrimRight(fmt.Sprintf("  %-20s%9d  %s", bound, b.Count, bar), " "))
	}
}

// brief returns a duration in one unit.
func brief(d time.Duration) string {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}} {
		if d >= unit.d {
			return fmt.Sprintf("%d %s", d/unit.d, unit.name)
		}
	}
	return d.String()
}
