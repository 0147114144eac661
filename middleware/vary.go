package middleware

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const mostVary = 32

// varyOf returns the fields that Vary names, canonical, sorted and each once, without those in
// answered. If Vary contains *, text that is no field name, or too many names, varyOf returns star:
// no other request may get the same response.
func varyOf(h http.Header) (names []string, star bool) {
	for _, line := range h["Vary"] {
		for name := range strings.SplitSeq(line, ",") {
			switch name = trimOWS(name); {
			case name == "":
			case name == "*" || !isToken(name):
				return nil, true
			default:
				if name = http.CanonicalHeaderKey(name); !slices.Contains(names, name) &&
					!slices.Contains(answered, name) {
					names = append(names, name)
				}
			}
			if len(names) > mostVary {
				return nil, true
			}
		}
	}
	slices.Sort(names)
	return names, false
}

// answered are the conditions that the cache evaluates itself. A response can't vary by them,
// because the handler's request has either no conditions or the conditions of the stored response.
// If the cache compared a client's conditions, each value would be a miss and would cost a place in
// the store that MaxVariants doesn't count.
var answered = []string{"If-None-Match", "If-Modified-Since", "If-Range"}

// selectedBy returns a string for the values of these fields in a request. Two requests get the
// same string only if a handler reads the same values in both. So the fields must have the same
// lines, in the same order and spelling. RFC 9111, section 4.1, allows a cache to join lines and
// drop whitespace. But Header.Get sees only the first line, and few handlers parse fields as the
// RFC does. A field that is absent differs from an empty one. Options.Normalize makes more requests
// equal.
func selectedBy(names []string, req http.Header) string {
	if len(names) == 0 {
		return ""
	}
	var room [128]byte
	b := room[:0]
	for _, name := range names {
		b = appendLines(b, req[name])
	}
	return string(b)
}

// appendLines appends the lines of a field, together with their number and the length of each.
func appendLines(b []byte, lines []string) []byte {
	if len(lines) == 0 {
		return append(b, '-')
	}
	b = append(b, '=')
	b = strconv.AppendInt(b, int64(len(lines)), 10)
	for _, line := range lines {
		b = appendSized(b, line)
	}
	return b
}

// appendSized appends a string together with its length.
func appendSized(b []byte, s string) []byte {
	b = append(b, '(')
	b = strconv.AppendInt(b, int64(len(s)), 10)
	b = append(b, ' ')
	return append(append(b, s...), ')')
}

// variantKey returns the key of one variant of a resource. It begins with a digit, and no
// resource's key begins with a digit. It contains the length of the resource's key, because with
// VaryBy the resource's key may end in any bytes.
func variantKey(key string, names []string, selected string) string {
	return strconv.Itoa(len(key)) + keySeparator + key + keySeparator + strings.Join(names, ",") +
		keySeparator + selected
}

// answers reports whether the response belongs to this resource and is selected by the request's
// fields.
func (res *response) answers(key string, req http.Header) bool {
	return res.key == key && res.selected == selectedBy(res.vary, req)
}

// withoutSpace removes the whitespace around commas and at both ends, but not inside quoted
// strings.
func withoutSpace(s string) string {
	s = trimOWS(s)
	if strings.IndexByte(s, ',') < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	first := true
	for member := range members(s, ',') {
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.WriteString(trimOWS(member))
	}
	return b.String()
}

// members iterates over the members of a list whose separators are outside of quoted strings. A
// quoted string that isn't closed extends to the end of s.
func members(s string, separator byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start, quoted := 0, false
		for i := 0; i < len(s); i++ {
			switch c := s[i]; {
			case c == '"':
				quoted = !quoted
			case c == '\\' && quoted:
				i++
			case c == separator && !quoted:
				if !yield(s[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(s[start:])
	}
}

// weighted returns one spelling for all equivalent lists of preferences (RFC 9110, section 12.4).
// It returns false if the list is malformed.
func weighted(name, list string) (string, bool) {
	type preference struct {
		what   string
		weight int // in thousandths
	}
	var preferences []preference
	for member := range members(list, ',') {
		if member = trimOWS(member); member == "" {
			continue
		}
		p := preference{weight: -1}
		var params strings.Builder // p.what would be copied for each
		for param := range members(member, ';') {
			param = trimOWS(param)
			if p.what == "" {
				if !isPreference(name, param) {
					return "", false
				}
				p.what = strings.ToLower(param)
				continue
			}
			key, value, found := strings.Cut(param, "=")
			switch {
			case !found || !isToken(key) || !isTokenOrQuoted(value):
				return "", false
			case !strings.EqualFold(key, "q"):
				params.WriteString(";" + strings.ToLower(key) + "=" + value)
			case p.weight >= 0:
				return "", false
			default:
				if p.weight = thousandths(value); p.weight < 0 {
					return "", false
				}
			}
		}
		if p.weight < 0 {
			p.weight = 1000
		}
		p.what += params.String()
		preferences = append(preferences, p)
	}
	slices.SortFunc(preferences, func(a, b preference) int {
		return cmp.Or(b.weight-a.weight, strings.Compare(a.what, b.what))
	})
	var b strings.Builder
	for i, p := range slices.Compact(preferences) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(p.what)
		switch {
		case p.weight == 0:
			b.WriteString(";q=0")
		case p.weight < 1000:
			b.WriteString(";q=0.")
			b.WriteString(strings.TrimRight(fmt.Sprintf("%03d", p.weight), "0"))
		}
	}
	return b.String(), true
}

// isPreference reports whether a member of this field may begin with s: with a media range in
// Accept, or else with a token.
func isPreference(name, s string) bool {
	if name != "Accept" {
		return isToken(s)
	}
	kind, sub, found := strings.Cut(s, "/")
	return found && isToken(kind) && isToken(sub)
}

func isTokenOrQuoted(s string) bool {
	if len(s) < 2 || s[0] != '"' {
		return isToken(s)
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return i == len(s)-1
		case '\\':
			i++
		}
	}
	return false
}

// thousandths returns a weight (RFC 9110, section 12.4.2) in thousandths, or -1 if s is no weight.
func thousandths(s string) int {
	if s == "" || s[0] != '0' && s[0] != '1' || len(s) > len("0.000") || len(s) > 1 && s[1] != '.' {
		return -1
	}
	n, unit := int(s[0]-'0')*1000, 100
	for i := 2; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n += int(s[i]-'0') * unit
		unit /= 10
	}
	if n > 1000 {
		return -1
	}
	return n
}
