package middleware

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

const notSaid = time.Duration(-1) // the value of a directive that is absent

// directives has the directives of a response that apply to this cache. They come from the first
// targeted field that can be read (RFC 9213), or else from Cache-Control.
//
// A directive that can't be read is treated as the stricter of its possible meanings. A max-age
// that is not a number counts as 0 (RFC 9111, section 4.2.1, says stale). A no-store with a value
// counts as no-store. A public with a value is ignored. If a directive occurs twice in
// Cache-Control, the first value is used (RFC 9111, section 4.2.1). But a directive that forbids
// something always applies, at any position: private together with private="a field" is private. If
// a directive occurs twice in a targeted field, only the last one is used, as in every Dictionary.
type directives struct {
	present  bool // the response has at least one directive
	targeted bool // from a targeted field, so Cache-Control and Expires are ignored

	noStore, noCache, private       bool // these directives apply to the whole response
	public                          bool
	mustRevalidate, proxyRevalidate bool
	mustUnderstand                  bool

	maxAge, sMaxAge     time.Duration // notSaid if absent
	sMaxAgeBroken       bool
	revalidate, ifError time.Duration // RFC 5861

	fields []string // canonical names listed by private="..." and no-cache="...", each once
}

// directives reads the directives of a response for this cache.
func (u *rules) directives(h http.Header) directives {
	for _, name := range u.targeted {
		if lines := h[name]; len(lines) > 0 {
			if d, ok := readTargeted(lines, h); ok {
				return d
			}
		}
	}
	return readCacheControl(h)
}

func noDirectives() directives {
	return directives{maxAge: notSaid, sMaxAge: notSaid, revalidate: notSaid, ifError: notSaid}
}

// readCacheControl reads Cache-Control (RFC 9111, section 5.2).
func readCacheControl(h http.Header) directives {
	d := noDirectives()
	for s := (scanner{lines: h["Cache-Control"]}); s.next(); {
		d.add(s.name, s.form, s.arg, h)
	}
	return d
}

// readTargeted reads a targeted field (RFC 9213, section 2.1), which is a Dictionary of RFC 9651.
// It returns false if the Dictionary is empty or can't be parsed. Then the caller treats the field
// as absent. Parameters are ignored.
func readTargeted(lines []string, h http.Header) (directives, bool) {
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil || len(dict.Names()) == 0 {
		return directives{}, false
	}
	d := noDirectives()
	d.targeted = true
	for _, name := range dict.Names() {
		member, _ := dict.Get(name)
		// An inner list leaves item empty, so the default case below adds it as broken.
		item, _ := member.(httpsfv.Item)
		switch v := item.Value.(type) {
		case bool:
			if v { // ?0 says that the directive doesn't apply
				d.add(name, bare, "", h)
			}
		case int64:
			if v < 0 {
				d.add(name, broken, "", h)
			} else {
				d.addSeconds(name, seconds(v), h)
			}
		case string:
			// A String in place of an Integer SHOULD NOT be consumed (RFC 9213, section 2.1).
			if isDigits(v) {
				d.add(name, broken, "", h)
			} else {
				d.add(name, quoted, v, h)
			}
		case httpsfv.Token:
			d.add(name, token, string(v), h)
		default:
			d.add(name, broken, "", h)
		}
	}
	d.present = true
	return d, true
}

// add adds one directive. h is the response's header, which is needed to tell field names from
// other values.
func (d *directives) add(name string, form form, arg string, h http.Header) {
	switch name := strings.ToLower(name); name {
	case "max-age", "s-maxage", "stale-while-revalidate", "stale-if-error":
		n, ok := deltaSeconds(arg)
		if !ok {
			n = 0
			d.sMaxAgeBroken = d.sMaxAgeBroken || name == "s-maxage"
		}
		d.addSeconds(name, n, h)
	case "no-store":
		d.noStore = true
	case "no-cache":
		d.noCache = !d.list(form, arg, h) || d.noCache
	case "private":
		d.private = !d.list(form, arg, h) || d.private
	case "public":
		d.public = d.public || form == bare
	case "must-revalidate":
		d.mustRevalidate = true
	case "proxy-revalidate":
		d.proxyRevalidate = true
	case "must-understand":
		d.mustUnderstand = true
	}
	d.present = true
}

// addSeconds adds a directive whose value is n. If the directive occurs twice the first value is
// used.
func (d *directives) addSeconds(name string, n time.Duration, h http.Header) {
	var to *time.Duration
	switch name {
	case "max-age":
		to = &d.maxAge
	case "s-maxage":
		to = &d.sMaxAge
	case "stale-while-revalidate":
		to = &d.revalidate
	case "stale-if-error":
		to = &d.ifError
	default: // other directives can't have a number as value
		d.add(name, broken, "", h)
		return
	}
	if *to == notSaid {
		*to = n
	}
}

// list adds the field names in private="..." and no-cache="..." to d.fields. It returns false if
// the directive is about the whole response, can't be read, or names no field. It also returns
// false if the directive names Vary, because without Vary nobody could tell which requests the
// response is for. A value without quotation marks is a field name only if the response has this
// field, because somebody may have invented private=true.
func (d *directives) list(form form, arg string, h http.Header) bool {
	switch form {
	case token:
		if _, there := h[http.CanonicalHeaderKey(arg)]; !there {
			return false
		}
	case quoted:
	default:
		return false
	}
	var names []string
	for name := range strings.SplitSeq(arg, ",") {
		name = strings.Trim(name, " \t")
		if name == "" {
			continue // lists may have empty elements (RFC 9110, section 5.6.1.2)
		}
		if !isToken(name) || strings.EqualFold(name, "Vary") {
			return false
		}
		names = append(names, http.CanonicalHeaderKey(name))
	}
	for _, name := range names {
		if !slices.Contains(d.fields, name) {
			d.fields = append(d.fields, name)
		}
	}
	return len(names) > 0
}

// form is the way in which the argument of a directive is written.
type form uint8

const (
	bare   form = iota // there is no argument
	token              // name=arg
	quoted             // name="arg"
	broken             // neither
)

// scanner reads the directives of all lines of a field, one after another. After a broken directive
// it goes on at the next comma. Commas inside complete quoted strings don't count, but a broken
// directive can't hide a no-store after its comma. After a quotation mark that isn't closed, each
// comma in the line counts. The scanner then ignores all further quotation marks, so that it
// doesn't search the line for the end of a quoted string again and again.
type scanner struct {
	lines []string // lines that are still to be read
	rest  string   // the unread rest of the current line
	// A quotation mark in the line isn't closed, so the text after it can't be trusted.
	bad bool

	name, arg string // arg is "" unless form is token or quoted
	form      form
}

// next goes to the next directive. It returns false if there is none.
func (s *scanner) next() bool {
	for {
		s.rest = strings.TrimLeft(s.rest, " \t,")
		if s.rest == "" {
			if len(s.lines) == 0 {
				return false
			}
			s.rest, s.lines, s.bad = s.lines[0], s.lines[1:], false
			continue
		}
		n := tokenLen(s.rest)
		if n == 0 {
			s.skip()
			continue
		}
		s.name, s.rest = s.rest[:n], s.rest[n:]
		s.argument()
		if s.bad {
			s.form, s.arg = broken, ""
		}
		return true
	}
}

// argument reads the text between a directive's name and the next comma.
func (s *scanner) argument() {
	s.form, s.arg = bare, ""
	if s.bad {
		s.skip()
		return
	}
	if arg, ok := strings.CutPrefix(s.rest, "="); ok {
		if strings.HasPrefix(arg, `"`) {
			end := quotedLen(arg)
			if end == 0 {
				s.bad = true
				s.skip()
				return
			}
			s.form, s.arg, s.rest = quoted, unquote(arg[:end]), arg[end:]
		} else {
			n := tokenLen(arg)
			s.form, s.arg, s.rest = token, arg[:n], arg[n:]
			if n == 0 {
				s.form = broken
			}
		}
	}
	s.rest = strings.TrimLeft(s.rest, " \t")
	if s.rest != "" && s.rest[0] != ',' {
		s.form, s.arg = broken, ""
		s.skip()
	}
}

// skip goes to the next comma that is not in a quoted string.
func (s *scanner) skip() {
	for i := 0; i < len(s.rest); i++ {
		switch s.rest[i] {
		case ',':
			s.rest = s.rest[i:]
			return
		case '"':
			if s.bad {
				continue
			}
			if n := quotedLen(s.rest[i:]); n > 0 {
				i += n - 1
			} else {
				s.bad = true
			}
		}
	}
	s.rest = ""
}

// tokenLen returns the length of the token that s begins with.
func tokenLen(s string) int {
	for i := range len(s) {
		if !isToken(s[i : i+1]) {
			return i
		}
	}
	return len(s)
}

// quotedLen returns the length of the quoted string that s begins with, or 0 if it has no end.
func quotedLen(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// unquote returns the value of a quoted string (RFC 9110, section 5.6.4).
func unquote(s string) string {
	s = s[1 : len(s)-1]
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}

// deltaSeconds reads a number of seconds, which must consist of digits (RFC 9111, section 1.2.2). A
// number above mostTTL becomes mostTTL.
func deltaSeconds(arg string) (time.Duration, bool) {
	if !isDigits(arg) {
		return 0, false
	}
	var n int64
	for _, c := range []byte(arg) {
		n = min(n*10+int64(c-'0'), int64(mostTTL/time.Second))
	}
	return seconds(n), true
}

func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(mostTTL/time.Second))) * time.Second
}

func isDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}
