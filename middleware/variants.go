package middleware

import (
	"hash/maphash"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// variants counts the responses of a URL that this process has stored, one for each value of the
// fields that Vary names. Clients choose these values, so without a limit any client could cause a
// page to be stored a million times.
//
// A client that uses up the limit must not keep out the variants of all other clients. So if a
// refused variant is requested again, it replaces another variant, at most once a second. So a
// variant that many clients request is stored soon.
type variants struct {
	mu     sync.Mutex // guards the fields below
	digest digester
	of     map[digest]*counted // by the resource's key
	order  []digest            // the digests of the keys, a ring
	next   int                 // the oldest
}

// digest is a hash of a key. It is used in place of the key, because a client can choose a key of a
// megabyte. Without the seeds nobody can find two keys with the same digest. If two keys had the
// same digest, two URLs would be counted as one.
type digest [2]uint64

// digester makes digests. The zero value is ready.
type digester struct {
	seeds [2]maphash.Seed
	ready bool
}

func (d *digester) of(s string) digest {
	if !d.ready {
		d.seeds, d.ready = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, true
	}
	return digest{maphash.String(d.seeds[0], s), maphash.String(d.seeds[1], s)}
}

// counted are the variants of one URL.
type counted struct {
	until    map[uint64]time.Time // for the hash of a variant, the end of its stale windows
	refused  []uint64             // variants refused lately, a ring
	next     int                  // the index of the oldest in refused
	replaced time.Time            // when a variant last replaced another one
}

const (
	mostCounted  = 4096 // URLs that are counted at a time
	mostRefused  = 128
	replaceEvery = time.Second
)

// admits reports whether a variant of a resource may be stored, and if so counts it until the given
// time, at which its stale windows end. A variant that is already counted may always be stored.
func (v *variants) admits(key, selected string, most int, now, until time.Time) bool {
	if most < 0 {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = make(map[digest]*counted)
	}
	page := v.digest.of(key)
	all := v.of[page]
	if all == nil {
		all = v.add(page)
	}
	one := v.digest.of(selected)[0]
	if !all.hasRoomFor(one, most, now) {
		return false
	}
	all.until[one] = until
	return true
}

func (v *variants) add(page digest) *counted {
	if len(v.order) < mostCounted {
		v.order = append(v.order, page)
	} else {
		delete(v.of, v.order[v.next])
		v.order[v.next] = page
		v.next = (v.next + 1) % mostCounted
	}
	all := &counted{until: make(map[uint64]time.Time)}
	v.of[page] = all
	return all
}

// hasRoomFor reports whether a variant may be stored. If there is no room and a replacement is
// allowed, it makes room for the variant.
func (c *counted) hasRoomFor(one uint64, most int, now time.Time) bool {
	if _, has := c.until[one]; has || len(c.until) < most {
		return true
	}
	maps.DeleteFunc(c.until, func(_ uint64, end time.Time) bool { return !end.After(now) })
	if len(c.until) < most {
		return true
	}
	if !slices.Contains(c.refused, one) {
		c.refuse(one)
		return false
	}
	if now.Sub(c.replaced) < replaceEvery {
		return false
	}
	c.replaced = now
	for other := range c.until { // an arbitrary variant is removed, because a map has no order
		delete(c.until, other)
		break
	}
	return true
}

func (c *counted) refuse(one uint64) {
	if len(c.refused) < mostRefused {
		c.refused = append(c.refused, one)
		return
	}
	c.refused[c.next] = one
	c.next = (c.next + 1) % mostRefused
}

// admits reports whether the response of a run may be stored beside the other variants of its URL.
func (c *Cache) admits(res *response, v verdict) bool {
	if len(res.vary) == 0 {
		return true
	}
	now := time.Now()
	return c.variants.admits(res.key, res.selected, c.opts.MaxVariants, now,
		now.Add(v.fresh+max(v.revalidate, v.ifError)))
}

// inFront returns a copy of a header that the handler is about to get, which has the fields of
// layers in front. The copy is canonical. If fields of Vary are ignored, inFront replaces the lines
// of Vary in h by equal strings at addresses of their own. By these addresses, selecting tells them
// from lines that the handler sets to the same words, even if layers behind the cache copy the
// header.
func (c *Cache) inFront(h http.Header) http.Header {
	if len(c.opts.IgnoreVary) > 0 {
		for name, lines := range h {
			if strings.EqualFold(name, "Vary") {
				marked := make([]string, len(lines))
				for i, line := range lines {
					marked[i] = strings.Clone(line)
				}
				h[name] = marked
			}
		}
	}
	return canonical(h.Clone())
}

// selecting returns the lines of Vary that select which requests get a response. all is the header,
// and before is the result of inFront. selecting uses fields in Options.IgnoreVary only if the
// handler itself names them, because layers in front add these fields for their own purposes, and
// add them again for each client. Both headers are canonical.
func (c *Cache) selecting(all, before http.Header) []string {
	lines, outer := all["Vary"], before["Vary"]
	if len(c.opts.IgnoreVary) == 0 || len(outer) == 0 {
		return lines
	}
	var kept []string
	for _, line := range lines {
		if slices.ContainsFunc(outer, func(s string) bool {
			return unsafe.StringData(s) == unsafe.StringData(line)
		}) {
			line = c.withoutIgnored(line)
		}
		if line != "" {
			kept = append(kept, line)
		}
	}
	return kept
}

// withoutIgnored returns a line of Vary without the fields in Options.IgnoreVary.
func (c *Cache) withoutIgnored(line string) string {
	var names []string
	for name := range strings.SplitSeq(line, ",") {
		if name = trimOWS(name); name != "" && !slices.ContainsFunc(c.opts.IgnoreVary,
			func(s string) bool { return strings.EqualFold(s, name) }) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// selectingOnly returns a header whose Vary has only the lines that selecting returns.
func (c *Cache) selectingOnly(all, before http.Header) http.Header {
	lines := c.selecting(all, before)
	if slices.Equal(lines, all["Vary"]) {
		return all
	}
	own := all.Clone()
	if own["Vary"] = lines; len(lines) == 0 {
		delete(own, "Vary")
	}
	return own
}

// news returns the header of a 304 or of a response to HEAD as selectingOnly does, and those of its
// fields that the handler has set.
func (c *Cache) news(said, before http.Header) (all, own http.Header) {
	all = c.selectingOnly(said, before)
	return all, ownFields(all, c.selectingOnly(before, before))
}
