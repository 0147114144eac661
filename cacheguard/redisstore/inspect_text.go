package redisstore

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// String returns a report of some lines for people. Texts that others have written are quoted.
func (i Inspection) String() string {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	line("key", "%q of cache %q, in Redis %q", i.Key, i.Cache, i.Name)
	line("so", "%s", strings.Join(i.Why, "\n\t"))
	line("now", "%s, by the clock of the server", instant(i.Now))
	if i.Value == nil {
		line("value", "none")
	} else {
		i.valueLines(line)
	}
	for _, tag := range i.Tags {
		tag.line(line)
	}
	if i.Lease == nil {
		line("lease", "none: nobody loads it")
	} else {
		i.Lease.lines(line)
	}
	if i.Waiters != nil {
		line("waiting", "%s", i.Waiters)
	}
	if i.NewerLeft != 0 {
		line("newer",
			"a value of format version 2, of a later program, stands beside it; removed %s",
			end(i.NewerLeft))
	}
	_ = w.Flush()
	return text.String()
}

func (i Inspection) valueLines(line func(name, format string, args ...any)) {
	v := i.Value
	line("value", "%d bytes, removed %s", v.Size, end(v.Left))
	switch i.State {
	case StateRemnant:
		return
	case StateUnreadable:
		if v.Load == "" {
			line("frame", "none")
			return
		}
		line("frame", "%s; as far as it is one: version %d, flags %02x, made by load %s", v.Err,
			v.Version, v.Flags, v.Load)
		return
	}
	what := "a value"
	if v.Flags&2 != 0 {
		what = "not to be shared"
	}
	if v.NotFound {
		what += ", does not exist"
	}
	line("frame", "version %d, flags %02x (%s), made by load %s", v.Version, v.Flags, what, v.Load)
	codec := "none of this module's"
	switch {
	case v.Codec != "":
		codec = v.Codec
	case v.Fingerprint == 0:
		codec = "one without a name"
	}
	line("codec", "%s, fingerprint %08x", codec, v.Fingerprint)
	line("made", "%s, %s ago, by a load that took %s", instant(v.Made), spell(v.Age), spell(v.Took))
	if v.FreshLeft > 0 {
		line("fresh", "for %s, %s left", spell(v.Fresh), spell(v.FreshLeft))
	} else {
		line("fresh", "for %s, over for %s", spell(v.Fresh), spell(-v.FreshLeft))
	}
	line("stale", "served while it is refreshed for %s, %s left", spell(v.Revalidate),
		spell(v.RevalidateLeft))
	line("", "served when a load fails for %s, %s left", spell(v.IfError), spell(v.IfErrorLeft))
	if !v.Marked.IsZero() {
		line("marked", "stale since %s, %s ago", instant(v.Marked), spell(i.Now.Sub(v.Marked)))
	}
	line("stamp", "%s: its load began after what was invalidated up to then", instant(v.Stamp))
	if v.Note != "" {
		line("note", "%s", v.Note)
	}
}

func (tag InspectedTag) line(line func(name, format string, args ...any)) {
	name, last := fmt.Sprintf("tag %q", tag.Name), "never invalidated"
	switch {
	case tag.Name == "":
		name, last = "cache", "not known since when"
		if !tag.Invalidated.IsZero() {
			last = "invalidated, or first used, at " + instant(tag.Invalidated)
		}
	case tag.State == "":
		last = "kept"
	case !tag.Invalidated.IsZero():
		last = "invalidated at " + instant(tag.Invalidated)
	}
	if tag.Soft {
		last += ", a soft one"
	}
	switch tag.State {
	case StateFresh:
		last += ": valid"
	case StateStale:
		last += ": the value is stale since then"
	case StateInvalid:
		last += ": invalid"
	}
	line(name, "%s", last)
}

func (l *InspectedLease) lines(line func(name, format string, args ...any)) {
	o := l.Outcome
	switch {
	case l.Err != "":
		line("lease", "%s; ends %s", l.Err, end(l.Left))
		return
	case o == nil:
		line("lease", "of load %s, granted at %s, ends %s", l.Load, instant(l.Granted), end(l.Left))
		told := "nobody on the common channel"
		if l.Awaited {
			told = "somebody on the common channel"
		}
		if l.Inboxes {
			told += "; its holder sends a message to each process that waits"
		}
		line("awaited", "%s", told)
		return
	}
	line("record", "of load %s, %s, kept %s", l.Load, cmp.Or(o.Kind, "of an unknown kind"),
		end(l.Left))
	if o.Text != "" {
		line("error", "%q", o.Text)
	}
	if o.Size > 0 {
		line("result", "%d bytes, for the calls that waited", o.Size)
	}
	if o.Failures > 0 {
		line("failures", "%d in a row", o.Failures)
	}
	line("back-off", "%s, %s left", spell(o.Backoff), spell(o.BackoffLeft))
}

// String says which processes wait.
func (w *InspectedWaiters) String() string {
	switch {
	case w.Err != "":
		return w.Err
	case w.All:
		return "all processes that have the cache open are told; noted " + end(w.Left)
	}
	return fmt.Sprintf("%d processes of %d, with the inboxes %s; noted %s", len(w.Inboxes),
		w.Processes, strings.Join(w.Inboxes, " "), end(w.Left))
}

// end returns a text that says when something ends by itself.
func end(left time.Duration) string {
	if left < 0 {
		return "never"
	}
	return "in " + spell(left)
}

func instant(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.Format("2006-01-02 15:04:05.000000 MST")
}

// spell returns a duration, rounded to 1 s, 100 ms, 1 ms or 1 µs, depending on its length.
func spell(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond, time.Millisecond} {
		if d.Abs() >= 100*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Microsecond).String()
}
