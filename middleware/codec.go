package middleware

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"time"
)

// codec defines the form of a response in the store. Numbers are unsigned varints, except the
// status, which is big-endian.
//
//	1 byte   version, 2
//	1 byte   flags: bit 0 unshared, bit 1 mustRevalidate, bit 2 personal, bit 3 guessed; all others must be zero
//	2 bytes  status; 0 only if unshared
//	age in nanoseconds
//	length of response.key, length of response.selected
//	number of vary's names, and the length of each
//	number of the header's fields, and for each the length of its name, the number of its values, and the length of each
//	the same for the trailer
//	length of the body
//	all texts, in this order, one after another
//	the body
//
// Names are canonical and sorted, so that one response has only one form. Every response that
// Decode accepts can be served. An attacker who can write to the store can store any response. But
// the attacker must not be able to split a response in two or crash a process.
type codec struct{ maxBody int }

const (
	codecVersion = 2

	codecUnshared       = 1 << 0
	codecMustRevalidate = 1 << 1
	codecPersonal       = 1 << 2
	codecGuessed        = 1 << 3

	mostFields = 1 << 10 // the most fields of a header or a trailer
	mostValues = 1 << 12 // the most values of a header and its trailer together
	mostText   = 1 << 20
)

// Name returns a name that contains the version, so that programs with different versions don't
// treat each other's responses as damaged.
func (codec) Name() string { return "http-response-" + strconv.Itoa(codecVersion) }

var errNoResponse = errors.New("middleware: not a response")

// Append fails for a response that Decode would not accept.
func (c codec) Append(dst []byte, res *response) ([]byte, error) {
	if res == nil {
		return dst, errNoResponse
	}
	if err := c.check(res); err != nil {
		return dst, err
	}
	header, trailer := sortedNames(res.header), sortedNames(res.trailer)
	size := 64 + len(res.key) + len(res.selected) + len(res.body)
	for _, h := range []http.Header{res.header, res.trailer} {
		for name, values := range h {
			size += len(name) + 4
			for _, value := range values {
				size += len(value) + 2
			}
		}
	}
	dst = slices.Grow(dst, size)
	var flags byte
	if res.unshared {
		flags |= codecUnshared
	}
	if res.mustRevalidate {
		flags |= codecMustRevalidate
	}
	if res.personal {
		flags |= codecPersonal
	}
	if res.guessed {
		flags |= codecGuessed
	}
	number := func(n int) { dst = binary.AppendUvarint(dst, uint64(n)) }
	dst = append(dst, codecVersion, flags)
	dst = binary.BigEndian.AppendUint16(dst, uint16(res.status))
	dst = binary.AppendUvarint(dst, uint64(res.age))
	number(len(res.key))
	number(len(res.selected))
	number(len(res.vary))
	for _, name := range res.vary {
		number(len(name))
	}
	lengths := func(h http.Header, names []string) {
		number(len(names))
		for _, name := range names {
			number(len(name))
			number(len(h[name]))
			for _, value := range h[name] {
				number(len(value))
			}
		}
	}
	lengths(res.header, header)
	lengths(res.trailer, trailer)
	number(len(res.body))
	dst = append(dst, res.key...)
	dst = append(dst, res.selected...)
	for _, name := range res.vary {
		dst = append(dst, name...)
	}
	texts := func(h http.Header, names []string) {
		for _, name := range names {
			dst = append(dst, name...)
			for _, value := range h[name] {
				dst = append(dst, value...)
			}
		}
	}
	texts(res.header, header)
	texts(res.trailer, trailer)
	return append(dst, res.body...), nil
}

// Decode returns a response whose body is a part of src. All its other texts are parts of one copy.
func (c codec) Decode(src []byte) (*response, error) {
	if len(src) < 4 {
		return nil, fmt.Errorf("%w: %d bytes", errNoResponse, len(src))
	}
	if src[0] != codecVersion {
		return nil, fmt.Errorf("%w: version %d", errNoResponse, src[0])
	}
	flags := src[1]
	if flags&^(codecUnshared|codecMustRevalidate|codecPersonal|codecGuessed) != 0 {
		return nil, fmt.Errorf("%w: flags %#x", errNoResponse, flags)
	}
	d := decoder{src: src[4:]}
	age := d.number64(math.MaxInt64)
	key, selected := d.text(), d.text()
	lengths := d.src // the lengths are read twice: first to measure, then to make the header
	names := d.number(mostVary)
	for range names {
		d.text()
	}
	fields, values := d.skipFields(mostValues)
	trailers, trailerValues := d.skipFields(mostValues - values)
	body := d.number(c.maxBody)
	if d.failed || len(d.src) != d.texts+body {
		return nil, fmt.Errorf("%w: lengths that can't be", errNoResponse)
	}
	texts := string(d.src[:d.texts])
	bytes := d.src[d.texts:]
	cut := func(n int) (s string) {
		s, texts = texts[:n], texts[n:]
		return s
	}
	res := &response{
		unshared:       flags&codecUnshared != 0,
		mustRevalidate: flags&codecMustRevalidate != 0,
		personal:       flags&codecPersonal != 0,
		guessed:        flags&codecGuessed != 0,
		status:         int(binary.BigEndian.Uint16(src[2:])),
		age:            time.Duration(age),
		key:            cut(key),
		selected:       cut(selected),
	}
	d = decoder{src: lengths}
	room := make([]string, 0, names+values+trailerValues)
	strings := func(n int) []string {
		start := len(room)
		for range n {
			room = append(room, cut(d.text()))
		}
		return room[start:len(room):len(room)]
	}
	if n := d.number(mostVary); n > 0 {
		res.vary = strings(n)
	}
	inOrder := true
	header := func(n int) http.Header {
		d.number(mostFields)
		if n == 0 {
			return nil
		}
		h := make(http.Header, n)
		previous := ""
		for range n {
			name := cut(d.text())
			inOrder = inOrder && name > previous
			previous = name
			h[name] = strings(d.number(mostValues))
		}
		return h
	}
	res.header = header(fields)
	res.trailer = header(trailers)
	if len(bytes) > 0 {
		res.body = bytes[:len(bytes):len(bytes)]
	}
	if !inOrder {
		return nil, fmt.Errorf("%w: fields out of order", errNoResponse)
	}
	if err := c.check(res); err != nil {
		return nil, err
	}
	return res, nil
}

// decoder reads the lengths. After a failure it returns zeros.
type decoder struct {
	src    []byte
	texts  int // the sum of all lengths of texts that it has read
	failed bool
}

func (d *decoder) number(most int) int { return int(d.number64(uint64(most))) }

func (d *decoder) number64(most uint64) uint64 {
	if d.failed {
		return 0
	}
	n, size := binary.Uvarint(d.src)
	// The last byte of a number in its shortest form is not zero.
	if size <= 0 || n > most || size > 1 && d.src[size-1] == 0 {
		d.failed = true
		return 0
	}
	d.src = d.src[size:]
	return n
}

func (d *decoder) text() int {
	n := d.number(mostText - d.texts)
	d.texts += n
	return n
}

func (d *decoder) skipFields(most int) (fields, values int) {
	fields = d.number(mostFields)
	for range fields {
		d.text()
		n := d.number(most - values)
		values += n
		for range n {
			d.text()
		}
	}
	return fields, values
}

// check returns an error if a part of a response can't be stored or served.
func (c codec) check(res *response) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errNoResponse}, args...)...)
	}
	if (res.status < 200 || res.status > 999) && (res.status != 0 || !res.unshared) {
		return wrong("status %d", res.status)
	}
	if res.age < 0 {
		return wrong("age %v", res.age)
	}
	if len(res.body) > c.maxBody {
		return wrong("a body of %d bytes", len(res.body))
	}
	if len(res.body) > 0 && !mayHaveBody(res.status) {
		return wrong("status %d with a body", res.status)
	}
	if len(res.vary) > mostVary {
		return wrong("it varies by %d fields", len(res.vary))
	}
	previous := ""
	for _, name := range res.vary {
		if !isCanonical(name) || name == "*" || name <= previous {
			return wrong("it varies by %q", name)
		}
		previous = name
	}
	if len(res.header) > mostFields || len(res.trailer) > mostFields {
		return wrong("%d fields and %d in the trailer", len(res.header), len(res.trailer))
	}
	texts, values := len(res.key)+len(res.selected), 0
	for i, h := range []http.Header{res.header, res.trailer} {
		for name, lines := range h {
			if !isCanonical(name) || !storable(name) || i == 1 && name == "Content-Length" {
				return wrong("field %q", name)
			}
			texts += len(name)
			values += len(lines)
			for _, line := range lines {
				if !isFieldValue(line) {
					return wrong("value %q of %s", line, name)
				}
				texts += len(line)
			}
		}
	}
	for _, name := range res.vary {
		texts += len(name)
	}
	if values > mostValues || texts > mostText {
		return wrong("%d values, %d bytes of text", values, texts)
	}
	if lines, has := res.header["Content-Length"]; has && mayHaveBody(res.status) && !res.unshared {
		if len(lines) != 1 || lines[0] != strconv.Itoa(len(res.body)) {
			return wrong("Content-Length %q of a body of %d bytes", lines, len(res.body))
		}
	}
	return nil
}

func isCanonical(name string) bool {
	return isToken(name) && textproto.CanonicalMIMEHeaderKey(name) == name
}

// isFieldValue reports whether s can be the value of a field (RFC 9110, section 5.5).
func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
