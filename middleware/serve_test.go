package middleware

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// testWriter is a minimal ResponseWriter, because the one of httptest allocates and clones.
type testWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newTestWriter() *testWriter { return &testWriter{header: http.Header{}} }

func (w *testWriter) Header() http.Header         { return w.header }
func (w *testWriter) WriteHeader(status int)      { w.status = status }
func (w *testWriter) Write(p []byte) (int, error) { return w.body.Write(p) }

func request(method string, header http.Header) *http.Request {
	r := httptest.NewRequest(method, "/", nil)
	for name, values := range header {
		r.Header[name] = values
	}
	return r
}

// servedRequests use all branches of serve.
var servedRequests = []*http.Request{
	request("GET", nil), request("HEAD", nil), request("GET", http.Header{"If-None-Match": {"*"}}),
	request("GET", http.Header{"Range": {"bytes=0-0"}}),
	request("GET", http.Header{"Range": {"bytes=0-0,-1"}}),
	request("GET", http.Header{"Range": {"bytes=9999999-"}}),
}

func TestServe(t *testing.T) {
	type h = http.Header
	full := h{"Cache-Control": {"max-age=60"}, "Content-Type": {"text/plain"},
		"Content-Language": {"en"}, "Etag": {`"1"`}, "Date": {day3},
		"Last-Modified": {day2}, "Content-Length": {"10"}, "Content-Location": {"/x"},
		"Vary": {"Foo"}, "Expires": {day3}, "Link": {"<1>", "<2>"},
		"Access-Control-Allow-Origin": {"*"}}
	without := func(from h, names ...string) h {
		from = from.Clone()
		for _, name := range names {
			delete(from, name)
		}
		return from
	}
	with := func(from h, pairs ...string) h {
		from = from.Clone()
		for i := 0; i < len(pairs); i += 2 {
			from[pairs[i]] = []string{pairs[i+1]}
		}
		return from
	}
	const body = "0123456789"
	for _, c := range []struct {
		name   string
		res    response
		method string
		asked  h
		before h // the fields that a layer in front has set
		age    time.Duration
		status string

		wantStatus int
		want       h
		wantBody   string
	}{
		{name: "whole", res: response{status: 200, header: full, body: []byte(body)},
			age: 61999 * time.Millisecond, status: "cacheguard; hit",
			wantStatus: 200, want: with(full, "Age", "61", "Cache-Status", "cacheguard; hit"),
			wantBody: body},
		{name: "without a status", res: response{status: 200, header: full, body: []byte(body)},
			wantStatus: 200, want: with(full, "Age", "0"), wantBody: body},
		{name: "an age below zero", res: response{status: 200, header: full, body: []byte(body)},
			age:        -time.Minute,
			wantStatus: 200, want: with(full, "Age", "0"), wantBody: body},
		{name: "head", res: response{status: 200, header: full, body: []byte(body)}, method: "HEAD",
			wantStatus: 200, want: with(full, "Age", "0")},
		{name: "head of what didn't say its length and type",
			res: response{status: 200, body: []byte(body)}, method: "HEAD",
			wantStatus: 200, want: h{
				"Age": {"0"}, "Content-Length": {"10"},
				"Content-Type": {"text/plain; charset=utf-8"},
			}},
		{name: "what didn't say its length and type",
			res:        response{status: 404, body: []byte(body)},
			wantStatus: 404,
			want: h{
				"Age": {"0"}, "Content-Length": {"10"},
				"Content-Type": {"text/plain; charset=utf-8"},
			}, wantBody: body},
		{name: "no type, on purpose",
			res:        response{status: 200, header: h{"Content-Type": {}}, body: []byte(body)},
			wantStatus: 200, want: h{"Age": {"0"}, "Content-Length": {"10"}, "Content-Type": {}},
			wantBody: body},
		{name: "encoded, no type",
			res: response{
				status: 200, header: h{"Content-Encoding": {"gzip"}}, body: []byte(body),
			},
			wantStatus: 200,
			want:       h{"Age": {"0"}, "Content-Length": {"10"}, "Content-Encoding": {"gzip"}},
			wantBody:   body},
		{
			name: "empty", res: response{status: 200}, wantStatus: 200,
			want: h{"Age": {"0"}, "Content-Length": {"0"}},
		},
		{
			name: "no content", res: response{status: 204, header: h{"Foo": {"1"}}},
			wantStatus: 204, want: h{"Age": {"0"}, "Foo": {"1"}},
		},
		{
			name: "no content, but a length",
			res:  response{status: 204, header: h{"Content-Length": {"0"}}}, wantStatus: 204,
			want: h{"Age": {"0"}},
		},
		{name: "304 by tag", res: response{status: 200, header: full, body: []byte(body)},
			asked: h{"If-None-Match": {`"1"`}}, status: "cacheguard; hit",
			age: time.Second, wantStatus: 304,
			want: with(without(full, "Content-Type", "Content-Language", "Content-Length",
				"Last-Modified"),
				"Age", "1", "Cache-Status", "cacheguard; hit")},
		{name: "304 by date",
			res:        response{status: 200, header: without(full, "Etag"), body: []byte(body)},
			asked:      h{"If-Modified-Since": {day2}},
			wantStatus: 304,
			want: with(without(full, "Content-Type", "Content-Language", "Content-Length",
				"Etag"), "Age", "0")},
		{name: "304 to head", res: response{status: 200, header: full, body: []byte(body)},
			asked: h{"If-None-Match": {`"1"`}}, method: "HEAD",
			wantStatus: 304,
			want: with(without(full, "Content-Type", "Content-Language", "Content-Length",
				"Last-Modified"), "Age", "0")},
		{name: "range",
			res: response{
				status: 200, header: with(full, "Content-Md5", "m"), body: []byte(body),
			},
			asked:      h{"Range": {"bytes=2-4"}},
			wantStatus: 206,
			want: with(full, "Age", "0", "Content-Range", "bytes 2-4/10", "Content-Length",
				"3"), wantBody: "234"},
		{name: "range from the end", res: response{status: 200, body: []byte(body)},
			asked: h{"Range": {"bytes=-1"}}, wantStatus: 206,
			want: h{
				"Age": {"0"}, "Content-Range": {"bytes 9-9/10"}, "Content-Length": {"1"},
				"Content-Type": {"text/plain; charset=utf-8"},
			},
			wantBody: "9"},
		{name: "range with a body that says it is a part", res: response{
			status: 200, header: h{"Content-Type": {"a/b"}, "Content-Range": {"bytes 4-9/10"}},
			body: []byte(body),
		},
			asked: h{"Range": {"bytes=0-0"}}, wantStatus: 206, wantBody: "0",
			want: h{
				"Age": {"0"}, "Content-Range": {"bytes 0-0/10"}, "Content-Length": {"1"},
				"Content-Type": {"a/b"},
			}},
		{name: "range outside", res: response{status: 200, header: full, body: []byte(body)},
			asked: h{"Range": {"bytes=10-"}}, wantStatus: 416,
			want: h{"Age": {"0"}, "Content-Range": {"bytes */10"}, "Content-Length": {"0"},
				"Date": {day3}, "Vary": {"Foo"}, "Link": {"<1>", "<2>"},
				"Access-Control-Allow-Origin": {"*"}}},
		{name: "range of another", res: response{status: 200, header: full, body: []byte(body)},
			asked:      h{"Range": {"bytes=2-4"}, "If-Range": {`"2"`}},
			wantStatus: 200, want: with(full, "Age", "0"), wantBody: body},
		{name: "head with a range", res: response{status: 200, header: full, body: []byte(body)},
			asked: h{"Range": {"bytes=2-4"}}, method: "HEAD",
			wantStatus: 200, want: with(full, "Age", "0")},
		{name: "range of an error", res: response{status: 404, header: full, body: []byte(body)},
			asked:      h{"Range": {"bytes=2-4"}},
			wantStatus: 404, want: with(full, "Age", "0"), wantBody: body},
		{name: "behind others", res: response{
			status: 200, header: h{
				"Cache-Status": {"origin; hit"}, "Vary": {"Foo"}, "Content-Type": {"a/b"},
				"X": {"1"},
			},
		},
			before: h{
				"Vary": {"Origin"}, "X-Frame-Options": {"deny"}, "Age": {"99"}, "X": {"2", "3"},
			}, status: "cacheguard; hit", wantStatus: 200,
			want: h{"Cache-Status": {"origin; hit", "cacheguard; hit"}, "Vary": {"Origin", "Foo"},
				"Content-Type": {"a/b"}, "X": {"1"},
				"X-Frame-Options": {"deny"}, "Age": {"0"}, "Content-Length": {"0"}}},
		{name: "behind one that says the same",
			res:    response{status: 200, header: h{"Vary": {"Foo", "Bar"}}},
			before: h{"Vary": {"Foo"}}, wantStatus: 200,
			want: h{"Vary": {"Foo", "Bar"}, "Age": {"0"}, "Content-Length": {"0"}}},
		{name: "behind a cache status", res: response{status: 200},
			before: h{"Cache-Status": {"x; hit"}}, status: "cacheguard; hit", wantStatus: 200,
			want: h{
				"Cache-Status": {"x; hit", "cacheguard; hit"}, "Age": {"0"},
				"Content-Length": {"0"},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestWriter()
			for name, values := range c.before {
				w.header[name] = values
			}
			if c.method == "" {
				c.method = "GET"
			}
			stored := c.res.header.Clone()
			c.res.serve(new(backlog), w, request(c.method, c.asked), c.age, c.status)
			if w.status != c.wantStatus || w.body.String() != c.wantBody ||
				!reflect.DeepEqual(w.header, c.want) {
				t.Errorf("%d %q %q,\nwant %d %q %q", w.status, w.header, w.body.String(),
					c.wantStatus, c.want, c.wantBody)
			}
			for name, values := range w.header { // a layer in front may change the header
				for i := range values {
					values[i] = "changed"
				}
				w.header[name] = append(values, "more")
			}
			for name, values := range w.header {
				for i, value := range values {
					if (value == "more") != (i == len(values)-1) {
						t.Errorf("%s reaches another field: %q", name, values)
					}
				}
			}
			if !reflect.DeepEqual(c.res.header, stored) {
				t.Errorf("what is shared has been changed: %q", c.res.header)
			}
		})
	}
}

// A layer in front may have slices with spare capacity in an array that this request shares with
// others.
func TestServeWritesIntoNothingOfOthers(t *testing.T) {
	array := []string{"front", "behind"}
	res := response{status: 200, header: http.Header{"Vary": {"Foo"}}}
	w := newTestWriter()
	w.header["Vary"], w.header["Cache-Status"] = array[:1], array[:1]
	res.serve(new(backlog), w, request("GET", nil), 0, "cacheguard; hit")
	if array[1] != "behind" {
		t.Errorf("%q", array)
	}
}

func TestServeManyRanges(t *testing.T) {
	res := response{
		status: 200, header: http.Header{"Content-Type": {"text/html"}, "Content-Range": {"x"}},
		body: []byte("0123456789"),
	}
	w := newTestWriter()
	res.serve(new(backlog), w, request("GET", http.Header{"Range": {"bytes=0-1, 20-, -3"}}), 0, "")
	if want := []string{fmt.Sprint(w.body.Len())}; w.status != 206 ||
		!reflect.DeepEqual(w.header["Content-Length"], want) || w.header["Content-Range"] != nil {
		t.Errorf("%d %q, want Content-Length %s", w.status, w.header, want)
	}
	kind, params, err := mime.ParseMediaType(w.header.Get("Content-Type"))
	if err != nil || kind != "multipart/byteranges" {
		t.Fatalf("%q, %v", kind, err)
	}
	parts := multipart.NewReader(&w.body, params["boundary"])
	for _, want := range []struct {
		contentRange, body string
	}{{"bytes 0-1/10", "01"}, {"bytes 7-9/10", "789"}} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(part)
		if err != nil || string(body) != want.body ||
			part.Header.Get("Content-Range") != want.contentRange ||
			part.Header.Get("Content-Type") != "text/html" {
			t.Errorf("%q %q, %v; want %+v", part.Header, body, err, want)
		}
	}
	if _, err := parts.NextPart(); err != io.EOF {
		t.Errorf("one part more: %v", err)
	}
}

// The test uses a connection: net/http corrects nothing, and GET and HEAD have the same header.
func TestServeOverHTTP(t *testing.T) {
	responses := map[string]*response{
		"/plain": {
			status: 200, header: http.Header{"Content-Type": {"text/plain"}, "Date": {day3}},
			body: []byte("0123456789"),
		},
		"/guess": {status: 200, header: http.Header{"Date": {day3}}, body: []byte("<html>")},
		"/guessed": {
			status: 200, header: http.Header{"Date": {day3}, "Content-Type": {}},
			body: []byte("<html>"),
		},
		"/trailer": {
			status: 200, header: http.Header{"Content-Length": {"10"}, "Date": {day3}},
			trailer: http.Header{"Sum": {"1", "2"}, "A": {"3"}}, body: []byte("0123456789"),
		},
		"/large": {
			status: 200, header: http.Header{"Date": {day3}},
			body: bytes.Repeat([]byte("0123456789"), 1<<16),
		},
		"/nothing": {status: 204, header: http.Header{"Date": {day3}}},
		"/gone":    {status: 410, header: http.Header{"Date": {day3}}},
		"/redirect": {
			status: 301, header: http.Header{"Date": {day3}, "Location": {"/"}},
			body: []byte("there"),
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		responses[r.URL.Path].serve(new(backlog), w, r, 5*time.Second, "cacheguard; hit")
	}))
	defer server.Close()
	do := func(method, path string) (*http.Response, string) {
		r, err := http.NewRequest(method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := server.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = got.Body.Close() }()
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(method, path, err)
		}
		return got, string(body)
	}
	for path, res := range responses {
		got, body := do("GET", path)
		if got.StatusCode != res.status || body != string(res.body) ||
			got.Header.Get("Age") != "5" || got.Header.Get("Date") != day3 {
			t.Errorf("%s: %d %q, %d bytes", path, got.StatusCode, got.Header, len(body))
		}
		if want := res.trailer; len(want) > 0 && !reflect.DeepEqual(got.Trailer, want) {
			t.Errorf("%s: trailer %q, want %q", path, got.Trailer, want)
		}
		if path != "/trailer" && mayHaveBody(res.status) &&
			got.ContentLength != int64(len(res.body)) {
			t.Errorf("%s: Content-Length %d", path, got.ContentLength)
		}
		head, body := do("HEAD", path)
		if body != "" || head.StatusCode != res.status ||
			!reflect.DeepEqual(head.Header, got.Header) {
			t.Errorf("HEAD %s: %d %q %q, but GET has %q", path, head.StatusCode, head.Header, body,
				got.Header)
		}
	}
	if got, _ := do("GET", "/guess"); !strings.HasPrefix(got.Header.Get("Content-Type"),
		"text/html") {
		t.Errorf("guessed as %q", got.Header.Get("Content-Type"))
	}
	if got, _ := do("GET", "/guessed"); got.Header.Get("Content-Type") != "" {
		t.Errorf("guessed as %q, though it must not be", got.Header.Get("Content-Type"))
	}
}

// One response answers many requests at a time, and layers in front change headers afterwards. The
// race detector watches this.
func TestServeIsSharedSafely(t *testing.T) {
	res := &response{status: 200,
		header: http.Header{"Content-Type": {"text/plain"}, "Etag": {`"1"`}, "Link": {"<1>", "<2>"},
			"Vary":         {"Foo"},
			"Cache-Status": {"x; hit"}}, body: []byte("0123456789")}
	trailed := *res
	trailed.trailer = http.Header{"Sum": {"1"}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, res := range []*response{res, &trailed} {
				for _, r := range servedRequests {
					w := newTestWriter()
					res.serve(new(backlog), w, r, time.Second, "cacheguard; hit")
					for name, values := range w.header {
						for i := range values {
							values[i] += "!"
						}
						w.header[name] = append(values, "!")
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestWeight(t *testing.T) {
	small, large := typicalResponse(1024).weight(), typicalResponse(10240).weight()
	if small < 1024 || large-small != 9216+1 { // the length has a digit more
		t.Errorf("%d and %d", small, large)
	}
	withTrailer := typicalResponse(1024)
	withTrailer.trailer = http.Header{"Sum": {strings.Repeat("x", 100)}}
	if got := withTrailer.weight(); got < small+100 {
		t.Errorf("with a trailer %d", got)
	}
	if (&response{}).weight() <= 0 {
		t.Error("nothing weighs nothing")
	}
}

func BenchmarkServe(b *testing.B) {
	res := typicalResponse(1024)
	for _, c := range []struct {
		name string
		r    *http.Request
	}{
		{"whole", request("GET", http.Header{"Accept": {"*/*"}})},
		{"304", request("GET", http.Header{"If-None-Match": {`"5f3a-17c2"`}})},
		{"range", request("GET", http.Header{"Range": {"bytes=0-99"}})},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			w := newTestWriter()
			for b.Loop() {
				clear(w.header)
				w.body.Reset()
				res.serve(new(backlog), w, c.r, 61*time.Second, "cacheguard; hit; ttl=30")
			}
		})
	}
}

// A handler that writes the same fields from values that it already has allocates only for the
// map's growth.
func TestServeAllocates(t *testing.T) {
	res, r := typicalResponse(1024), request("GET", nil)
	var w testWriter
	var b backlog
	w.body.Grow(2048)
	served := testing.AllocsPerRun(100, func() {
		w.header = make(http.Header)
		w.body.Reset()
		res.serve(&b, &w, r, 161*time.Second, "cacheguard; hit; ttl=30")
	})
	same := w.header
	bare := testing.AllocsPerRun(100, func() {
		w.header = make(http.Header)
		w.body.Reset()
		for name, values := range same {
			w.header[name] = values
		}
		w.WriteHeader(200)
		_, _ = w.Write(res.body)
	})
	if served-bare > 2 {
		t.Errorf("%v allocations, %v without serve", served, bare)
	}
}
