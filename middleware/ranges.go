package middleware

import (
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// span is a range of bytes in a body.
type span struct{ start, end int }

func (s span) length() int { return s.end - s.start }

func (s span) contentRange(size int) string {
	return "bytes " + strconv.Itoa(s.start) + "-" + strconv.Itoa(s.end-1) + "/" + strconv.Itoa(size)
}

const mostRanges = 16

// parseRange returns the parts of a body of this size that a Range asks for (RFC 9110, section
// 14.1.2), or no parts if the body has none of them. It returns false if the field is malformed,
// has a unit other than bytes, or has more than mostRanges ranges. Then the caller ignores the
// field.
func parseRange(field string, size int) (spans []span, ok bool) {
	unit, set, found := strings.Cut(trimOWS(field), "=")
	if !found || !strings.EqualFold(unit, "bytes") {
		return nil, false
	}
	specs := 0
	for spec := range strings.SplitSeq(set, ",") {
		if spec = trimOWS(spec); spec == "" {
			continue
		}
		if specs++; specs > mostRanges {
			return nil, false
		}
		first, last, found := strings.Cut(spec, "-")
		if !found {
			return nil, false
		}
		if first == "" { // a range without a first position means the last bytes
			n, ok := position(last)
			if !ok {
				return nil, false
			}
			if n > 0 && size > 0 {
				spans = append(spans, span{max(0, size-n), size})
			}
			continue
		}
		start, ok := position(first)
		if !ok {
			return nil, false
		}
		end := size
		if last != "" {
			to, ok := position(last)
			if !ok || to < start {
				return nil, false
			}
			end = min(size, to+1)
		}
		if start < size {
			spans = append(spans, span{start, end})
		}
	}
	return spans, specs > 0
}

// position reads a number of bytes. A number with more than 15 digits is invalid, because no body
// here is that large.
func position(s string) (int, bool) {
	if s == "" || len(s) > 15 {
		return 0, false
	}
	n := int64(0)
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	const most = int64(^uint(0)>>1) - 1
	return int(min(n, most)), true
}

// worthwhile reports whether the parts together are not larger than the whole body. With
// overlapping parts they may be larger.
func worthwhile(spans []span, size int) bool {
	total := 0
	for _, s := range spans {
		total += s.length()
	}
	return total <= size
}

// serveRange writes the parts that the request asks for, or a 416 if the body has none of them. The
// header has already been copied to w.
func (res *response) serveRange(b *backlog, w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	size := len(res.body)
	spans, _ := parseRange(r.Header["Range"][0], size)
	delete(h, "Content-Md5")
	delete(h, "Content-Digest")
	if len(spans) == 0 {
		for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Language",
			"Content-Location",
			"Etag", "Last-Modified", "Cache-Control", "Expires"} {
			delete(h, name)
		}
		h["Content-Range"] = []string{"bytes */" + strconv.Itoa(size)}
		h["Content-Length"] = []string{"0"}
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	w, res, t := b.lends(w, res)
	defer t.close()
	if len(spans) == 1 {
		h["Content-Range"] = []string{spans[0].contentRange(size)}
		h["Content-Length"] = []string{strconv.Itoa(spans[0].length())}
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(res.body[spans[0].start:spans[0].end])
		return
	}
	contentType := h.Get("Content-Type")
	var length counter
	dry := multipart.NewWriter(&length)
	writeParts(dry, res.body, spans, contentType)
	delete(h, "Content-Range") // each part has its own
	h["Content-Type"] = []string{"multipart/byteranges; boundary=" + dry.Boundary()}
	h["Content-Length"] = []string{strconv.Itoa(int(length))}
	w.WriteHeader(http.StatusPartialContent)
	parts := multipart.NewWriter(w)
	_ = parts.SetBoundary(dry.Boundary())
	writeParts(parts, res.body, spans, contentType)
}

// writeParts ignores errors, because they mean that the client has left.
func writeParts(to *multipart.Writer, body []byte, spans []span, contentType string) {
	for _, s := range spans {
		head := textproto.MIMEHeader{"Content-Range": {s.contentRange(len(body))}}
		if contentType != "" {
			head["Content-Type"] = []string{contentType}
		}
		part, err := to.CreatePart(head)
		if err != nil {
			return
		}
		if _, err := part.Write(body[s.start:s.end]); err != nil {
			return
		}
	}
	_ = to.Close()
}

// counter counts the bytes that are written to it.
type counter int

var _ io.Writer = (*counter)(nil)

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
