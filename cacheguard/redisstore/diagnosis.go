package redisstore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Diagnosis is the result of [Store.Diagnose].
type Diagnosis struct {
	Addr   string // address of the server, as the client has it
	User   string // Redis user; empty if it isn't known, as with a credentials provider
	Prefix string // prefix of the store

	// Name and version of the server, such as "redis 7.0.15"; empty if it doesn't say.
	Server string
	// Standalone, cluster or sentinel, as the server calls itself; empty if it doesn't say.
	Mode     string
	Role     string // master or replica; empty if it doesn't say
	Eviction string // its maxmemory-policy; empty if it doesn't say

	UsedMemory int64 // bytes; 0 if it doesn't say
	MaxMemory  int64 // maxmemory in bytes; 0: there is no limit, or the server doesn't say

	Trip    time.Duration // time of the shortest of a few commands
	Clock   time.Duration // how far the server's clock is ahead of this machine's
	Message time.Duration // time from a change to the message about it; 0 if no message came

	Parts []Part // the steps of the store, in the order in which they were tried

	// Command with which an administrator gives the user all missing rights; empty: no right was
	// missing.
	Mend string
}

// Part is one thing that a store does.
type Part struct {
	Name  string
	Means string // the effect on callers if the part doesn't work
	Err   error  // why it doesn't work; nil: it does
}

// MarshalJSON writes Err as text, and adds the member Works, which says whether Err is nil.
func (p Part) MarshalJSON() ([]byte, error) {
	text := ""
	if p.Err != nil {
		text = p.Err.Error()
	}
	return json.Marshal(struct {
		Name  string
		Works bool
		Error string `json:",omitempty"`
		Means string `json:",omitempty"`
	}{p.Name, p.Err == nil, text, p.Means})
}

// Err returns an error that joins the errors of all parts that don't work. If all parts work, it
// returns nil.
func (d Diagnosis) Err() error {
	var errs []error
	for _, p := range d.Parts {
		if p.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, p.Err))
		}
	}
	return errors.Join(errs...)
}

// String returns a report of a few lines for people.
func (d Diagnosis) String() string {
	const unknown = "unknown"
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "address\t%s\n", d.Addr)
	fmt.Fprintf(w, "user\t%s\n", cmp.Or(d.User, unknown))
	fmt.Fprintf(w, "prefix\t%s\n", d.Prefix)
	if d.Server != "" || d.Mode != "" {
		fmt.Fprintf(w, "server\t%s\n", cmp.Or(d.Server, unknown))
		fmt.Fprintf(w, "mode\t%s, %s\n", cmp.Or(d.Mode, unknown), cmp.Or(d.Role, "role "+unknown))
		fmt.Fprintf(w, "memory\t%s\n", d.memory())
		fmt.Fprintf(w, "eviction\t%s\n", cmp.Or(d.Eviction, unknown))
		fmt.Fprintf(w, "trip\t%v\n", d.Trip.Round(time.Microsecond))
	}
	if d.Clock != 0 {
		fmt.Fprintf(w, "clock\t%+v\n", d.Clock.Round(time.Millisecond))
	}
	if d.Message != 0 {
		fmt.Fprintf(w, "message\t%v\n", d.Message.Round(time.Microsecond))
	}
	for _, p := range d.Parts {
		if p.Err == nil {
			fmt.Fprintf(w, "%s\tworks\n", p.Name)
			continue
		}
		fmt.Fprintf(w, "%s\tDOESN'T WORK: %v\n\tso %s\n", p.Name,
			strings.ReplaceAll(p.Err.Error(), "\n", "; "), p.Means)
	}
	if d.Mend != "" {
		fmt.Fprintf(w, "to mend it\t%s\n", d.Mend)
	}
	_ = w.Flush()
	return text.String()
}

// memory returns how full the server is. A server that is nearly full accepts one write and refuses
// the next.
func (d Diagnosis) memory() string {
	const mib = 1 << 20
	switch used := float64(d.UsedMemory); {
	case d.UsedMemory == 0:
		return "unknown"
	case d.MaxMemory == 0:
		return fmt.Sprintf("%.1f MiB used, no limit", used/mib)
	default:
		share := 100 * used / float64(d.MaxMemory)
		text := fmt.Sprintf("%.1f of %.1f MiB used, %.1f %%", used/mib, float64(d.MaxMemory)/mib,
			share)
		if d.Eviction == "noeviction" &&
			(share >= almostFull || strings.Contains(fmt.Sprint(d.Err()), "OOM")) {
			text += ": full, and nothing is evicted; a write that works here may fail the next time, for buffers of clients count"
		}
		return text
	}
}

const almostFull = 95 // percent
