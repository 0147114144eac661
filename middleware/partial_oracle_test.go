package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// editions is an origin whose page has one version after another. Each version has another text and
// another strong tag, and a few have another length. Eight versions share a weak tag. The origin
// answers ranges in all the ways that a handler may use, and in some ways that are not allowed.
type editions struct {
	mu   sync.Mutex // guards the fields below
	rnd  *rand.Rand
	text [][]byte // the text of each version
}

func (o *editions) next() {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := make([]byte, []int{25, 40}[o.rnd.IntN(2)])
	// No two versions have the same byte at the same place, as long as there are few versions.
	for i := range text {
		text[i] = byte(' ' + (7*i+13*len(o.text))%95)
	}
	o.text = append(o.text, text)
}

func (o *editions) newest() (int, []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.text) - 1, o.text[len(o.text)-1]
}

func (o *editions) of(n int) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text[n]
}

func (o *editions) chance(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rnd.IntN(n)
}

// ServeHTTP answers with the newest version. It takes some time before and after it finds out which
// version that is.
func (o *editions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Duration(o.chance(3)) * time.Second)
	n, text := o.newest()
	time.Sleep(time.Duration(o.chance(3)) * time.Second)
	h := w.Header()
	h["Cache-Control"] = []string{fmt.Sprintf("max-age=%d", 5+o.chance(30))}
	h["X-Version"], h["Content-Type"], h["Cache-Tag"] = []string{strconv.Itoa(n)}, []string{
		"text/plain",
	}, []string{"page"}
	switch o.chance(8) {
	case 0: // no tag
	case 1, 2, 3:
		h["Etag"] = []string{fmt.Sprintf(`W/"w%d"`, n/8)}
	default:
		h["Etag"] = []string{fmt.Sprintf(`"%d"`, n)}
	}
	if r.Header["Range"] != nil && o.odd(w, text) {
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// odd sometimes answers in a way that no handler should, and reports whether it did.
func (o *editions) odd(w http.ResponseWriter, text []byte) bool {
	h := w.Header()
	start := o.chance(len(text))
	place, body := fmt.Sprintf("bytes %d-%d/%d", start, len(text)-1, len(text)), text[start:]
	switch o.chance(24) {
	case 0: // another range than was asked for
	case 1:
		body = body[1:]
	case 2:
		body = append(bytes.Clone(body), '!')
	case 3:
		place = fmt.Sprintf("bytes %d-%d/*", start, len(text)-1)
	case 4: // the range, as a compressing middleware would change it
		h["Content-Encoding"], body = []string{"gzip"}, bytes.Repeat([]byte{'!'}, len(body))
	case 5:
		h["Set-Cookie"] = []string{"a=b"}
	case 6:
		place = "bytes 3-2/1"
	case 7: // the whole
		h["X-Odd"] = []string{"1"}
		_, _ = w.Write(text)
		return true
	default:
		return false
	}
	h["X-Odd"], h["Content-Range"] = []string{"1"}, []string{place}
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(body)
	return true
}

// ask makes a request of a random kind.
func (o *editions) ask() *http.Request {
	method := http.MethodGet
	if o.chance(12) == 0 {
		method = http.MethodHead
	}
	r := httptest.NewRequest(method, "/", nil)
	first := o.chance(40)
	last := first + o.chance(40-first)
	if spec := []string{
		"", "", "a-b", "a-b", "a-b", "a-", "-c", "a-b,0-0", "x",
	}[o.chance(9)]; spec != "" {
		numbers := strings.NewReplacer("a", strconv.Itoa(first), "b", strconv.Itoa(last), "c",
			strconv.Itoa(1+first))
		r.Header.Set("Range", "bytes="+numbers.Replace(spec))
	}
	n, _ := o.newest()
	tag := fmt.Sprintf(`"%d"`, max(0, n-o.chance(3)))
	for field, value := range map[string]string{"If-Range": tag, "If-None-Match": tag,
		"Cookie": "user=1",
		"Cache-Control": []string{
			"no-cache", "max-age=3", "no-store", "only-if-cached",
		}[o.chance(4)]} {
		if o.chance(10) == 0 {
			r.Header.Set(field, value)
		}
	}
	return r
}

// check returns an error if an answer is wrong. All bytes of an answer must be of one version. If
// the answer has a strong tag, this must be the version of the tag. The bytes must be at the place
// that the answer names, and not older than the version oldest. If the answer comes from the cache,
// it must also have the range that was asked for. X-Version doesn't tell the version of a body,
// because a HEAD may have updated it.
func (o *editions) check(r *http.Request, w *http.Response, body []byte, oldest int) (err error) {
	hit := strings.Contains(w.Header.Get("Cache-Status"), "; hit")
	switch {
	case w.StatusCode == http.StatusGatewayTimeout &&
		strings.Contains(r.Header.Get("Cache-Control"), "only-if-cached"):
		return nil
	case w.Header.Get("X-Odd") != "" && !hit:
		return nil
	}
	newest, _ := o.newest()
	tag := w.Header.Get("Etag")
	err = fmt.Errorf("no version from %d to %d", oldest, newest)
	for n := oldest; n <= newest; n++ {
		if strings.HasPrefix(tag, `"`) && tag != fmt.Sprintf(`"%d"`, n) {
			continue
		}
		if err = o.isOf(n, r, w, body); err == nil {
			return nil
		}
	}
	return err
}

// isOf returns the reason why an answer can't be of a version.
func (o *editions) isOf(n int, r *http.Request, w *http.Response, body []byte) error {
	text := o.of(n)
	switch w.StatusCode {
	case http.StatusOK:
		if r.Method == http.MethodHead {
			return nil
		}
		if string(body) != string(text) {
			return fmt.Errorf("version %d is %q", n, text)
		}
	case http.StatusNotModified:
		if want := r.Header.Get("If-None-Match"); strings.Trim(want, `W/"`) != strconv.Itoa(n) {
			return fmt.Errorf("the client has %s", want)
		}
	case http.StatusPartialContent:
		return o.checkParts(r, w, body, n)
	case http.StatusRequestedRangeNotSatisfiable:
		if got := w.Header.Get("Content-Range"); got != fmt.Sprintf("bytes */%d", len(text)) &&
			r.Header.Get("Range") != "bytes=x" {
			return fmt.Errorf("Content-Range %q of %d bytes", got, len(text))
		}
	default:
		return fmt.Errorf("nobody gives this status")
	}
	return nil
}

// checkParts is check for a 206.
func (o *editions) checkParts(r *http.Request, w *http.Response, body []byte, n int) error {
	text := o.of(n)
	if r.Header["Range"] == nil {
		return fmt.Errorf("nobody asked for a part")
	}
	if r.Method == http.MethodHead { // http.ServeContent answers a HEAD like a GET
		if strings.Contains(w.Header.Get("Cache-Status"), "; hit") {
			return fmt.Errorf("a part for HEAD")
		}
		return nil
	}
	if has := r.Header.Get("If-Range"); has != "" && has != w.Header.Get("Etag") {
		return fmt.Errorf("the client has %s of %s", has, w.Header.Get("Etag"))
	}
	wanted := rangesOf(text, r.Header.Get("Range"))
	kind, params, _ := mime.ParseMediaType(w.Header.Get("Content-Type"))
	if kind != "multipart/byteranges" {
		if len(wanted) != 1 {
			return fmt.Errorf("one part in place of %d", len(wanted))
		}
		return checkPart(text, textproto.MIMEHeader(w.Header), body, wanted[0])
	}
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for _, want := range wanted {
		part, err := parts.NextPart()
		if err != nil {
			return err
		}
		bytes, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		if err := checkPart(text, part.Header, bytes, want); err != nil {
			return err
		}
	}
	return nil
}

// rangesOf returns where each range of a field begins and ends, without the ranges beyond the end
// of the text.
func rangesOf(text []byte, field string) (all [][2]int) {
	for spec := range strings.SplitSeq(strings.TrimPrefix(field, "bytes="), ",") {
		first, last, _ := strings.Cut(spec, "-")
		start, err := strconv.Atoi(first)
		end := len(text)
		switch to, also := strconv.Atoi(last); {
		case err != nil && also == nil:
			start = max(0, end-to)
		case also == nil:
			end = min(end, to+1)
		}
		if start < len(text) && start < end {
			all = append(all, [2]int{start, end})
		}
	}
	return all
}

// checkPart compares a part with the text and with the range that was asked for.
func checkPart(text []byte, h textproto.MIMEHeader, body []byte, want [2]int) error {
	if place := fmt.Sprintf("bytes %d-%d/%d", want[0], want[1]-1,
		len(text)); h.Get("Content-Range") != place {
		return fmt.Errorf("Content-Range %q, want %q", h.Get("Content-Range"), place)
	}
	if bytes := text[want[0]:want[1]]; string(body) != string(bytes) {
		return fmt.Errorf("%s is %q", h.Get("Content-Range"), bytes)
	}
	return nil
}

// changes makes a version, tells the cache of the change, and returns the version's number.
func (o *editions) changes(t *testing.T, cache *middleware.Cache, h http.Handler) int {
	o.next()
	n, _ := o.newest()
	switch o.chance(3) {
	case 0:
		asks(h, "POST", "/") // the origin answers the POST after a while, like all requests
	case 1:
		_ = cache.Purge(t.Context(), "/")
	default:
		_ = cache.PurgeTags(t.Context(), "page")
	}
	return n
}

// Versions, ranges, conditions, purges and wrong handlers come one after another and at the same
// time. Each answer must have bytes of one version, at the place that it names, and the bytes that
// were asked for. It must not be of a version that was purged.
func TestRangesAgainstAnOracle(t *testing.T) {
	hits, parts := 0, 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			o := &editions{rnd: rnd}
			o.next()
			cache := newCache(t, middleware.Options{
				MaxBody: 30, StaleIfError: 5 * time.Second, StrongReads: seed%4 == 1,
			})
			h := cache.Handler(o)
			var all sync.WaitGroup
			oldest := 0
			for range 150 {
				switch o.chance(40) {
				case 0, 1, 2:
					o.next()
				case 3, 4: // a change, and a way to make it known
					oldest = o.changes(t, cache, h)
				case 5, 6, 7:
					time.Sleep(time.Duration(o.chance(12)) * time.Second)
				}
				r, from := o.ask(), oldest
				ask := func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					got := w.Result()
					if err := o.check(r, got, w.Body.Bytes(), from); err != nil {
						t.Errorf("seed %d: %s %v: %d %v %q: %v", seed, r.Method, r.Header, w.Code,
							got.Header, w.Body, err)
					}
					o.mu.Lock()
					defer o.mu.Unlock()
					if strings.Contains(got.Header.Get("Cache-Status"), "; hit") {
						hits++
						if got.StatusCode == http.StatusPartialContent {
							parts++
						}
					}
				}
				if seed%2 == 0 || o.chance(4) == 0 {
					ask()
				} else {
					all.Go(ask)
				}
			}
			all.Wait()
		})
		if t.Failed() {
			return
		}
	}
	if parts < 1000 || hits < 2*parts {
		t.Errorf("%d hits, %d of them parts: too few to say anything", hits, parts)
	}
	t.Logf("%d hits, %d of them parts", hits, parts)
}
