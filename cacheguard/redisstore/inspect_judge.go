package redisstore

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// codecNames are the names of this module's codecs, except protocodec, which has a name for each
// type.
var codecNames = []string{
	"json", "raw", "msgpack", "compress(json)", "compress(raw)", "compress(msgpack)", "compress",
	"http-response-2",
}

// codecName returns the name of the codec with this fingerprint for this version of the type, or ""
// if it is not in codecNames.
func codecName(fingerprint uint32, version int) string {
	for _, name := range codecNames {
		if frame.Fingerprint(name, version) == fingerprint {
			return name
		}
	}
	return ""
}

// Inspect tries the values of Options.Version below versionsTried, every second one, to find the
// version for which a value was made. Users' releases count up from one.
const versionsTried = 1000

// madeFor returns the version of the type for which a value was made, if it is not the cache's
// version and a codec of this module made the value.
func madeFor(fingerprint uint32, version int) (other int, ok bool) {
	if codecName(fingerprint, version) != "" {
		return 0, false
	}
	for other = version % cacheguard.Versions; other < versionsTried; other += cacheguard.Versions {
		if codecName(fingerprint, other) != "" {
			return other, true
		}
	}
	return 0, false
}

var outcomeNames = map[cacheguard.OutcomeKind]string{
	cacheguard.OutcomeFailed:   "failed",
	cacheguard.OutcomeUnstored: "unstored",
	cacheguard.OutcomeUnshared: "unshared",
}

// judged returns the result of an inspection: the entries, and their meaning for callers.
func (found sight) judged() Inspection {
	i := Inspection{Now: sane(found.now), State: StateAbsent, NewerLeft: found.newer}
	i.Why = []string{"nothing is stored"}
	if found.value.there() {
		i.Value = &InspectedValue{Size: len(found.value.b), Left: found.value.left}
		i.Why[0] = i.judgeValue(found)
	}
	if found.lease.there() {
		i.Lease = leaseIn(found.lease)
		i.Why = append(i.Why, i.Lease.means())
	} else if i.State != StateFresh && i.State != StateUnshared {
		i.Why = append(i.Why, "no load is under way: the next caller begins one")
	}
	if found.waiters.there() {
		i.Waiters = waitersIn(found.waiters)
	}
	return i
}

// judgeValue fills in the fields about the value, and returns what the value means for callers.
func (i *Inspection) judgeValue(found sight) string {
	v, b := i.Value, found.value.b
	if len(b) > 0 {
		v.Version = b[0]
	}
	if len(b) > 1 {
		v.Flags = b[1]
	}
	tags, remnant := frame.RemnantTags(b)
	// Bytes that begin with this package's version are a damaged frame, or a frame with flags of a
	// later program, and are reported below.
	if !remnant && (len(b) == 0 || b[0] != frame.Version) {
		i.State, v.Version, v.Flags, v.Body = StateUnreadable, 0, 0, b
		v.Err = "not an entry of cacheguard but " + cmp.Or(found.kind, kindOf(b))
		return "the stored bytes are " + v.Err +
			": another program has written it, and the next load overwrites it"
	}
	v.Load = hex.EncodeToString(frame.ID(b))
	if remnant {
		i.State, i.Tags = StateRemnant, tagsOf(tags)
		return "a writer has removed the value, and its tags are kept for the one to come"
	}
	h, body, err := frame.Parse(b)
	if other, ok := madeFor(h.Codec, found.version); ok && err == nil && !h.Null {
		err = fmt.Errorf("it was made for Options.Version %d, and asked for is %d", other,
			found.version)
	}
	if err != nil {
		i.State, v.Err, v.Body = StateUnreadable, err.Error(), b
		return "the stored bytes are no value (" + v.Err + "): the next load overwrites them"
	}
	v.Body = body
	return i.judgeHeader(h, found)
}

// kindOf returns the kind of a string that is not a frame. It shows at most four bytes of the
// content.
func kindOf(b []byte) string {
	_, notNumber := strconv.ParseFloat(string(b), 64)
	switch {
	case len(b) == 0:
		return "an empty string"
	case notNumber == nil:
		return "a number"
	case json.Valid(b):
		return "JSON"
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		return "gzip"
	case utf8.Valid(b) && !bytes.ContainsFunc(b, unicode.IsControl):
		return "text"
	}
	return "bytes that begin with " + hex.EncodeToString(b[:min(len(b), 4)])
}

// judgeHeader is judgeValue for a readable value.
func (i *Inspection) judgeHeader(h frame.Header, found sight) string {
	v := i.Value
	v.NotFound, v.Fingerprint, v.Codec = h.Null, h.Codec, codecName(h.Codec, found.version)
	v.Made, v.Took, v.Note = sane(h.Created), h.Took, hex.EncodeToString(h.Note)
	v.Fresh, v.Revalidate, v.IfError = h.Soft, h.Revalidate, h.IfError
	if h.Stamp > 0 {
		v.Stamp = sane(time.UnixMicro(h.Stamp))
	}
	if !h.Marked.IsZero() {
		v.Marked = sane(h.Marked)
	}
	invalid := i.judgeTags(&h, found)
	age, over, good := protocol.Judge(h, found.now)
	v.Age, v.FreshLeft = age, -over
	v.RevalidateLeft, v.IfErrorLeft = max(h.Revalidate-max(over, 0), 0),
		max(h.IfError-max(over, 0), 0)
	if invalid != "" {
		i.State = StateInvalid
		return invalid
	}
	return i.means(h, good)
}

// tagsOf returns a list of tags whose invalidations are not known.
func tagsOf(tags frame.Tags) (all []InspectedTag) {
	for n, tag := range tags.All() {
		all = append(all, InspectedTag{Name: strings.TrimPrefix(tag, "\x00"), Soft: tags.Soft(n)})
	}
	return all
}

// judgeTags fills in the effect of invalidations on a value. If they have made the value invalid,
// it returns the reason. The invalidation of a soft tag marks the value stale in h.
func (i *Inspection) judgeTags(h *frame.Header, found sight) (invalid string) {
	of := found.generations(len(h.Tags) > 0)
	i.Tags = append([]InspectedTag{{State: StateFresh}}, tagsOf(h.Tags)...)
	if protocol.TooFarAhead(h.Stamp, found.now) {
		invalid = "invalid: its load has a stamp from the future, as a clock that was set back leaves it"
	}
	for n := range i.Tags {
		tag := &i.Tags[n]
		switch {
		case of == nil && n == 0:
			tag.State = StateInvalid
			invalid = "invalid: the time at which its cache was last invalidated is lost or damaged, so no value that was loaded before now is valid"
			continue
		case of == nil:
			continue
		}
		tag.State = StateFresh
		if of[n] > 0 {
			tag.Invalidated = sane(time.UnixMicro(of[n]))
		}
		switch {
		case protocol.Counts(h.Stamp, of[n]):
		case tag.Soft:
			tag.State = StateStale
			if at := time.UnixMicro(of[n]); h.Marked.IsZero() || at.Before(h.Marked) {
				h.Marked = at
			}
		default:
			tag.State = StateInvalid
			what := "its cache"
			if n > 0 {
				what = "its tag " + strconv.Quote(tag.Name)
			}
			invalid = cmp.Or(invalid, "invalid: "+what+" was invalidated after its load began")
		}
	}
	return invalid
}

// generations returns the generations by which a value is judged. For a value without tags it is
// the separately stored generation of the cache, unless that is lost. generations returns nil if
// the generations are not known.
func (found sight) generations(tagged bool) cacheguard.Generations {
	if whole := wholeOf(found.whole); whole != 0 && !tagged {
		return cacheguard.Generations{whole}
	}
	if len(found.scores) == 0 || found.scores[0] == 0 {
		return nil
	}
	return found.scores
}

// means returns what a value means for callers, and sets its State.
func (i *Inspection) means(h frame.Header, good protocol.Use) string {
	v, gets := i.Value, "a caller gets it"
	if h.Null {
		gets = "a caller is told that it does not exist"
	}
	switch {
	case h.Unshared && good == protocol.Fresh:
		i.State = StateUnshared
		return "no value for anybody: each caller loads for itself, for " + spell(v.FreshLeft) +
			" more"
	case h.Unshared:
		i.State = StateExpired
		return "that each caller loads for itself is over: it is as if nothing were there"
	case good == protocol.Fresh:
		i.State = StateFresh
		return "fresh: " + gets + ", for " + spell(v.FreshLeft) + " more"
	case good == protocol.Meanwhile:
		i.State = StateStale
		return "stale: " + gets + " at once and one process refreshes it, for " +
			spell(v.RevalidateLeft) + " more"
	case good == protocol.OnError:
		i.State = StateOnError
		return "stale: " + gets + " if a load fails, for " + spell(v.IfErrorLeft) + " more"
	}
	i.State = StateExpired
	if v.Age < 0 {
		return "expired: made in the future, as a clock that was set back leaves it"
	}
	return "expired: only the next load sees it"
}

// sane returns the zero Time for a time that JSON can't represent.
func sane(t time.Time) time.Time {
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return time.Time{}
	}
	return t.UTC()
}

func leaseIn(e entry) *InspectedLease {
	l := &InspectedLease{Left: e.left}
	s, ok := parseStanding(string(e.b))
	switch {
	case !ok:
		l.Err = "neither a lease nor a record"
	case e.left < 0:
		l.Err = "it has no end, as only another program's writes have"
	case s.record:
		l.Load = strings.ToLower(s.load)
		text, _ := frame.Unmark(s.outcome.Text)
		l.Outcome = &InspectedOutcome{
			Kind: outcomeNames[s.outcome.Kind], Text: text, Size: len(s.outcome.Frame),
			Failures: s.outcome.Failures,
			Backoff:  duration(s.backoff), BackoffLeft: s.backoffLeft(e.left),
		}
	default:
		l.Load, l.Awaited, l.Inboxes = strings.ToLower(s.load), s.awaited, s.inboxes
		if s.number > 0 && s.number < pastAll {
			l.Granted = sane(time.UnixMicro(s.number))
		}
	}
	return l
}

// means returns what a call gets if it would otherwise load.
func (l *InspectedLease) means() string {
	switch o := l.Outcome; {
	case l.Err != "":
		return "its lease can't be read (" + l.Err + "): the next load overwrites it"
	case o == nil:
		return "a load is under way: calls that need the value wait for it, for " + spell(l.Left) +
			" at most unless its lease is renewed"
	case o.BackoffLeft > 0 && o.Kind == outcomeNames[cacheguard.OutcomeFailed]:
		return "the last load has failed: calls that would load get its error, for " +
			spell(o.BackoffLeft) + " more"
	case o.BackoffLeft > 0:
		return "the last load has left no value: no other load gets the lease, for " +
			spell(o.BackoffLeft) + " more"
	case o.Kind == outcomeNames[cacheguard.OutcomeFailed]:
		return "the last load has failed, and the next may begin"
	}
	return "the last load has left no value, and the next may begin"
}

func waitersIn(e entry) *InspectedWaiters {
	w := &InspectedWaiters{Left: e.left}
	m := waitersForm.FindSubmatch(e.b)
	switch {
	case bytes.Equal(e.b, []byte("*")):
		w.All = true
	case m == nil:
		w.Err = "not a list of processes that wait"
	default:
		w.Processes, _ = strconv.Atoi(string(m[1]))
		w.Inboxes = strings.Fields(string(m[2]))
	}
	return w
}
