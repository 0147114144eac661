package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/examples/catalog/internal/lab"
)

// No output of the command contains a password, whether it runs or fails.
func TestSecretsAreNotPrinted(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	addr := nobody.Addr().String()
	for _, args := range [][]string{
		{"-db", "postgres://shop:hunter2@" + addr + "/shop?sslmode=disable"},
		{"-db", "postgres://" + addr + "/shop?user=shop&password=hunter2&sslmode=disable"},
		{"-db", "postgres://" + addr + "/shop?sslmode=disable&sslpassword=hunter2"},
		{"-db", "postgres://" + addr + "/shop?password=hunter2&sslmode=magic"},
		{"-db", "postgres://shop:hunter2@%zz/shop"},
		{"-db", "postgres://shop:hunter2/more@" + addr + "/shop"},
		{"-db", "POSTGRES://shop:hunter2@" + addr + "/shop"},
		{"-db", "host=localhost password=hunter2"},
		{"-db", "mysql://root:hunter2@localhost"},
		{"-redis", "redis://:hunter2@" + addr},
		{"-redis", "shop:hunter2@" + addr},
		{"-redis", "shop:hunter2@localhost:port"},
		{"-zookeeper", "zk://shop:hunter2@" + addr},
		{"postgres://shop:hunter2@" + addr},
		{"-replicas", "postgres://shop:hunter2@" + addr},
		{"-dbpostgres://shop:hunter2@" + addr},
		{"-redis", addr, "-db", "file?password=hunter2"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"-addr", "127.0.0.1:0"}, args...), &stdout,
			&stderr); code == 0 || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, on stderr %q", args, code, &stderr)
		}
		if said := stdout.String() + stderr.String(); strings.Contains(said, "hunter2") {
			t.Errorf("%q: the password is printed: %s", args, said)
		}
	}
}

// If a library's output contains a password, the password is hidden, too, in every spelling. The
// rest of the output isn't hidden.
func TestHiding(t *testing.T) {
	var out strings.Builder
	w := hide(&out, []string{"-db", "postgres://shop:p%40ss%22%2F@h/db?password=o%26ther+one"})
	for said, want := range map[string]string{
		`dial as shop with p@ss"/: refused`:               "dial as shop with xxxxx: refused",
		`msg="dial" error="with p@ss\"/"`:                 `msg="dial" error="with xxxxx"`,
		"query password=o%26ther+one&sslmode=disable":     "query password=xxxxx&sslmode=disable",
		"it was o&ther one":                               "it was xxxxx",
		"redis://:elsewhere@h:1 and PASSWORD = 'a b' end": "redis://xxxxx@h:1 and PASSWORD = xxxxx end",
		"replica 1 of 2: http://127.0.0.1:8080":           "replica 1 of 2: http://127.0.0.1:8080",
	} {
		out.Reset()
		if n, err := io.WriteString(w, said); err != nil || n != len(said) || out.String() != want {
			t.Errorf("%q became %q, %v; want %q", said, out.String(), err, want)
		}
	}
	if got := place("postgres://shop:secret@db.example:5432/shop?password=secret#secret"); got !=
		"postgres://db.example:5432/shop" {
		t.Errorf("the database is at %q", got)
	}
}

// If another site's name points at the shop's address, the shop refuses its requests.
func TestForeignHosts(t *testing.T) {
	c := start(t, 1, "-origin-delay", "0s", "-hosts", "shop.example,catalog")
	client := newClient(t)
	port := c.urls[0][strings.LastIndexByte(c.urls[0], ':'):]
	ask := func(method, path, host string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, c.urls[0]+path,
			strings.NewReader(`{"name": "Hi-fi"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, host := range []string{
		"evil.example", "evil.example" + port, "localhost.evil.example", "127.0.0.1.evil.example",
		"evil.localhost" + port, "1.2.3.4" + port,
		"[2001:db8::1]" + port, "shop.example.evil.example", "2130706433", "localhost..",
		"127.0.0.1 ", "xn--localhost",
	} {
		for path, method := range map[string]string{
			"/categories/21": "POST", "/catalog.json": "GET", "/catalog": "GET", "/": "GET",
			"/metrics": "GET", "/stats.json": "GET", "/healthz": "GET", "/lab/run": "POST",
		} {
			// net/http's own error.
			if status := ask(method, path, host); status != http.StatusMisdirectedRequest &&
				status != http.StatusBadRequest {
				t.Errorf("%s %s as %q: status %d", method, path, host, status)
			}
		}
	}
	for _, host := range []string{
		"localhost", "LOCALHOST" + port, "localhost.", "127.0.0.1" + port, "127.1.2.3",
		"[::1]" + port, "shop.example", "Shop.Example:443", "catalog",
	} {
		if status := ask("POST", "/categories/21", host); status != http.StatusOK {
			t.Errorf("renaming as %q: status %d", host, status)
		}
	}
}

// No request that another site's page can make a browser send begins work or changes data.
func TestOtherSitesBeginNothing(t *testing.T) {
	c := start(t, 1, "-origin-delay", "0s")
	client := newClient(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	ask := func(method, path string, fields ...string) *http.Response {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, method, c.urls[0]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			req.Header.Set(fields[i], fields[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	for _, from := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "http://evil.example"}, {"Origin", "null"},
	} {
		for _, path := range []string{"/lab/run", "/lab/run?stage=setnx", "/categories/21"} {
			if resp := ask("POST", path, from...); resp.StatusCode != http.StatusForbidden {
				t.Errorf("POST %s with %q: status %d", path, from, resp.StatusCode)
			}
		}
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		if resp := ask(method,
			"/lab/run?stage=setnx"); resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s begins a run: status %d", method, resp.StatusCode)
		}
	}
	if resp := ask("POST", "/lab/run", "Sec-Fetch-Site",
		"same-origin"); resp.StatusCode != http.StatusOK ||
		resp.Header.Get("Content-Type") != eventStream {
		t.Errorf("the page's own run: status %d, %v", resp.StatusCode, resp.Header)
	}
	// The page runs the settings in its URL. If a script of another site opens it, it must not run.
	// A click, a typed URL and the page's own links may make it run.
	opened := []string{"Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site"}
	for _, from := range []string{"cross-site", "same-site"} {
		if resp := ask("GET", "/?stage=none&fault=none",
			append(opened, from)...); resp.StatusCode != http.StatusSeeOther ||
			resp.Header.Get("Location") != "/" {
			t.Errorf("a script of a %s page opens the lab with a run: status %d, %v", from,
				resp.StatusCode, resp.Header)
		}
		if resp := ask("GET", "/?stage=none&fault=none",
			append(opened, from, "Sec-Fetch-User", "?1")...); resp.StatusCode != http.StatusOK {
			t.Errorf("a link of a %s page: status %d", from, resp.StatusCode)
		}
	}
	for _, from := range []string{"none", "same-origin"} {
		if resp := ask("GET", "/?stage=none&fault=none",
			append(opened, from)...); resp.StatusCode != http.StatusOK {
			t.Errorf("opened from %s: status %d", from, resp.StatusCode)
		}
	}
	if resp := ask("GET", "/?stage=none&fault=none"); resp.StatusCode != http.StatusOK {
		t.Errorf("opened by what has no such fields: status %d", resp.StatusCode)
	}
}

// deaf is a client whose kernel accepts no more data after the first flush, until the write
// deadline is over.
type deaf struct {
	http.ResponseWriter
	blocked chan struct{} // closed when a write waits

	mu    sync.Mutex // guards the fields below
	wake  chan struct{}
	by    time.Time
	first bool
}

func newDeaf() *deaf {
	return &deaf{
		ResponseWriter: httptest.NewRecorder(), blocked: make(chan struct{}),
		wake: make(chan struct{}), first: true,
	}
}

func (d *deaf) SetWriteDeadline(by time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by = by
	close(d.wake)
	d.wake = make(chan struct{})
	return nil
}

func (d *deaf) FlushError() error {
	d.mu.Lock()
	if d.first {
		close(d.blocked)
		d.first = false
	}
	for {
		left, wake := time.Until(d.by), d.wake
		d.mu.Unlock()
		if left <= 0 {
			return context.DeadlineExceeded
		}
		select {
		case <-wake:
		case <-time.After(left):
		}
		d.mu.Lock()
	}
}

// Clients that don't read lose their places to new clients, beginning with the client for which the
// server has waited longest. If no client is slow, the newest client is refused.
func TestSlowestRunMakesRoom(t *testing.T) {
	l := newLaboratory(lab.World{}, nil)
	began := time.Now()
	var all []*stream
	var ended []context.Context
	join := func(w http.ResponseWriter, at time.Time) (*stream, bool) {
		ctx, end := context.WithCancelCause(t.Context())
		s := newStream(w, end)
		all, ended = append(all, s), append(ended, ctx)
		return s, l.admit(s, at)
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	for i := range mostRuns {
		w := newDeaf()
		s, ok := join(w, began)
		if !ok {
			t.Fatalf("run %d was turned away", i+1)
		}
		if i != 1 { // one client reads
			sending.Go(func() { s.send("steps", "x") })
			<-w.blocked
		}
	}
	if _, ok := join(httptest.NewRecorder(), began); ok {
		t.Error("one more got a place while nobody is slow")
	}
	for _, want := range []int{0, 2, 3} {
		if _, ok := join(httptest.NewRecorder(), time.Now().Add(2*slowAfter)); !ok {
			t.Fatalf("run %d doesn't make room", want+1)
		}
		if context.Cause(ended[want]) != errSlow {
			t.Errorf("run %d goes on: %v", want+1, context.Cause(ended[want]))
		}
	}
	if _, ok := join(httptest.NewRecorder(), time.Now().Add(time.Hour)); ok ||
		ended[1].Err() != nil {
		t.Error("one that reads has lost its place")
	}
	sending.Wait() // all sends have ended
	if len(l.runs) != mostRuns {
		t.Errorf("%d runs, want %d", len(l.runs), mostRuns)
	}
}

// The number of steps that wait for a client is bounded. If a run makes steps faster than the
// client takes them, the client is given up.
func TestStepsForASlowClientAreBounded(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	s := newStream(newDeaf(), end)
	for range 3 * mostSteps {
		s.step(lab.Event{})
	}
	if context.Cause(ctx) != errSlow || len(s.steps) > mostSteps {
		t.Errorf("%d steps wait, %v", len(s.steps), context.Cause(ctx))
	}
}

// Four clients that read nothing of their runs don't prevent the run of a fifth client.
func TestClientsThatDontReadHoldNoRuns(t *testing.T) {
	c := start(t, 1)
	for range mostRuns {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.urls[0], "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn,
			"POST /lab/run?stage=setnx&fault=crash&ttl=30s&requests=200&replicas=8 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
		if line, err := bufio.NewReaderSize(conn, 16).ReadString(' '); err != nil ||
			line != "HTTP/1.1 " {
			t.Fatalf("%q, %v", line, err)
		}
	}
	client := newClient(t)
	for began := time.Now(); ; {
		resp, err := client.Post(c.urls[0]+"/lab/run?stage=none", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusOK {
			if by := events(t, resp); len(by["report"]) != 1 {
				t.Errorf("%q", by)
			}
			return
		}
		resp.Body.Close()
		if time.Since(began) > 25*time.Second { // before the runs end by themselves
			t.Fatal("no run for who reads")
		}
		select {
		case <-time.After(50 * time.Millisecond): // sooner than Retry-After demands
		case <-t.Context().Done():
		}
	}
}

// A run accepts no body, because until the body is read, the server doesn't notice that the client
// has left.
func TestRunTakesNoBody(t *testing.T) {
	c := start(t, 1)
	resp, err := newClient(t).Post(c.urls[0]+"/lab/run", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// Every connection has deadlines, also for requests that are no runs.
func TestServersHaveDeadlines(t *testing.T) {
	f, err := openFleet(t.Context(),
		options{host: "127.0.0.1", replicas: 1, ttl: time.Second, stage: ownStage},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	s := f.replicas[0].server
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= bodyTimeout || s.WriteTimeout <= 0 ||
		s.IdleTimeout <= 0 || s.WriteTimeout < 2*loadTimeout(f.opts) {
		t.Errorf("head %v, answer %v, between requests %v", s.ReadHeaderTimeout, s.WriteTimeout,
			s.IdleTimeout)
	}
}
