package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// audio is the category that the tests rename, at level 2.
const audio = 21

// rename renames a category, and returns the status and the body of the answer.
func rename(t *testing.T, client *http.Client, url string, id int, body string) (int, string) {
	t.Helper()
	resp, err := client.Post(fmt.Sprintf("%s/categories/%d", url, id), "application/json",
		strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(said)
}

// Readers of all replicas never get a name that was replaced before their request, on any URL, and
// no old name stays. The database is asked once for each rename, and once for each time that the
// cached map expires, however many readers ask in the meantime.
//
// With CACHEGUARD_TEST=soak the test runs for a minute, and the map expires between the renames.
func TestNobodyIsToldAnOldName(t *testing.T) {
	replicas, renames, ttl, pause := 4, 10, time.Hour, time.Duration(0)
	if childproc.Soak() {
		renames, ttl, pause = 24, time.Second, 2500*time.Millisecond
	}
	seen := &history{}
	opts, err := parseOptions([]string{
		"-addr", "127.0.0.1:0", "-replicas", fmt.Sprint(replicas), "-ttl", ttl.String(),
		"-origin-delay", "20ms",
		"-redis", redistest.Shared(t).Addr(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := openFleet(t.Context(), opts, slog.New(seen))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := f.serve(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() {
		stop()
		serving.Wait()
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}()

	client := newClient(t)
	var readers sync.WaitGroup
	var begun, acknowledged, reads atomic.Int64
	done := make(chan struct{})
	for _, r := range f.replicas {
		for _, path := range ways {
			readers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					least := acknowledged.Load()
					told := toldVersion(t, get(t, client, r.url+path))
					if most := begun.Load(); told < least || told > most {
						t.Errorf("%s says name %d; %d was acknowledged before, and %d is the last one",
							path, told, least, most)
						return
					}
					reads.Add(1)
				}
			})
		}
	}
	for _, r := range f.replicas {
		get(t, client, r.url+"/catalog.json")
	}
	for n := int64(1); n <= int64(renames) && !t.Failed(); n++ {
		begun.Store(n)
		if status, said := rename(t, client, f.replicas[n%int64(replicas)].url, audio,
			fmt.Sprintf(`{"name": "Audio %d"}`, n)); status != http.StatusOK {
			t.Errorf("status %d: %s", status, said)
		}
		seen.add("acknowledged")
		acknowledged.Store(n)
		for _, r := range f.replicas { // so that the map is cached again before the next rename
			if told := toldVersion(t, get(t, client, r.url+"/catalog.json")); told != n {
				t.Errorf("%s says name %d after %d", r.url, told, n)
			}
		}
		_ = wait(t.Context(), pause) // for the cached map to expire
	}
	close(done)
	readers.Wait()
	byRename, byEnd, again := seen.causes(t, ttl)
	s := f.stats()
	t.Logf("%d reads; %d loads: the first one, %d for %d renames, %d because the map came to its end, %d again",
		reads.Load(), s.Loads, byRename, s.Renames, byEnd, again)
	if byRename != renames || s.Loads != int64(1+byRename+byEnd+again) ||
		s.Renames != int64(renames) {
		t.Errorf("%d loads, of which %d because of a rename: %+v", s.Loads, byRename, s)
	}
	if ttl == time.Hour &&
		(byEnd != 0 || s.PageRuns > int64(renames)+1 || s.CategoryLoads > 2*int64(renames+1)) {
		t.Errorf("%d loads because something came to its end: %+v", byEnd, s)
	}
}

var audioName = regexp.MustCompile(`[">]Audio( \d+)?["<]`)

// toldVersion returns the number in Audio's name, or 0 before the first rename.
func toldVersion(t *testing.T, body []byte) int64 {
	t.Helper()
	names := audioName.FindAllSubmatch(body, -1)
	if len(names) != 1 {
		t.Errorf("%d names in %.300s", len(names), body)
		return -1
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(names[0][1])), 10, 64)
	return n
}

// history contains the events that the shop logs, in their order.
type history struct {
	mu     sync.Mutex // guards events
	events []happened
}

type happened struct {
	what string
	when time.Time
}

func (h *history) Enabled(context.Context, slog.Level) bool { return true }
func (h *history) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *history) WithGroup(string) slog.Handler            { return h }

func (h *history) Handle(_ context.Context, r slog.Record) error {
	h.add(r.Message)
	return nil
}

func (h *history) add(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, happened{what, time.Now()})
}

// causes counts the causes of the map's loads: a rename, the expiry of the cached map, or a
// repeated load. A load is repeated if the one before began after a rename was committed and before
// the cache was told, because its value could not be kept. Except for the first load, there must be
// no other cause.
func (h *history) causes(t *testing.T, ttl time.Duration) (byRename, byEnd, again int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const jitter = 10 // percent, by which a TTL may be shorter
	first, renamed, telling := true, false, false
	tooEarly := false // the running load began while the caches were being told
	var loaded time.Time
	for _, e := range h.events {
		switch e.what {
		case sayLoaded:
			loaded, tooEarly = e.when, false
		case sayRenamed:
			renamed, telling = true, true
		case "acknowledged":
			telling = false
		case sayLoads:
			switch {
			case first:
				first = false
			case renamed:
				byRename++
			case tooEarly:
				again++
			case e.when.Sub(loaded) >= ttl*(100-jitter)/100:
				byEnd++
			default:
				t.Errorf("a load without a cause, %v after the last one", e.when.Sub(loaded))
			}
			renamed, tooEarly = false, telling
		}
	}
	return byRename, byEnd, again
}

func TestRenamingBadly(t *testing.T) {
	c := start(t, 1, "-origin-delay", "0s")
	client := newClient(t)
	for _, r := range []struct {
		id     int
		body   string
		status int
		says   string
	}{
		{audio, ``, http.StatusBadRequest, "the new one"},
		{audio, `Hi-fi`, http.StatusBadRequest, "the new one"},
		{audio, `{"name": 5}`, http.StatusBadRequest, "name is of the kind number"},
		{audio, `[]`, http.StatusBadRequest, "got: array"},
		{audio, `{"title": "Hi-fi"}`, http.StatusBadRequest, "title"},
		{audio, `{"name": "Hi-fi"} {}`, http.StatusBadRequest, "nothing after it"},
		{audio, `{"name": "Hi-fi"}]`, http.StatusBadRequest, "nothing after it"},
		{
			audio, `{"name": "Hi-fi"}` + strings.Repeat(" ", mostRename),
			http.StatusRequestEntityTooLarge, "too large",
		},
		{audio, "{\"name\": \"Hi-fi\xff\"}", http.StatusBadRequest, "not UTF-8"},
		{audio, `{"name": " "}`, http.StatusBadRequest, "empty"},
		{audio, `{"name": "a\u0000b"}`, http.StatusBadRequest, "printed"},
		{
			audio, `{"name": "` + strings.Repeat("x", 101) + `"}`, http.StatusBadRequest,
			"101 characters",
		},
		{
			audio, `{"name": "` + strings.Repeat("x", 5000) + `"}`,
			http.StatusRequestEntityTooLarge, "too large",
		},
		{audio, `{"name": "Televisions"}`, http.StatusConflict, "another category"},
		{123456, `{"name": "Hi-fi"}`, http.StatusNotFound, "category 123456"},
		{-1, `{"name": "Hi-fi"}`, http.StatusNotFound, `"-1"`},
		{audio, `{"name": "Audio"}`, http.StatusOK, `"Audio"`},
	} {
		if status, said := rename(t, client, c.urls[0], r.id, r.body); status != r.status ||
			!strings.Contains(said, strings.ReplaceAll(r.says, `"-1"`, `\"-1\"`)) {
			t.Errorf("%d %.60s: status %d, %s; want %d with %q", r.id, r.body, status, said,
				r.status, r.says)
		}
	}
	req, err := http.NewRequest(http.MethodPost, fmt.Sprintf("%s/categories/%d", c.urls[0], audio),
		strings.NewReader(`{"name": "Hi-fi"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://elsewhere.example")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d for another site's request, want 403", resp.StatusCode)
	}
	if body := get(t, client, c.urls[0]+"/catalog.json"); !bytes.Contains(body, []byte(`"Audio"`)) {
		t.Error("it was renamed")
	}
}

// If a client begins a request and doesn't finish it, the shop doesn't wait for it.
func TestARenameThatNeverArrives(t *testing.T) {
	c := start(t, 1)
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.urls[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn,
		"POST /categories/%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", audio)
	// A test that waits in vain is ended by go test.
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d, want 408", resp.StatusCode)
	}
}

// silentDB is a database that never answers.
type silentDB struct{}

func (silentDB) Connect(context.Context) (driver.Conn, error) { return silentDB{}, nil }
func (silentDB) Driver() driver.Driver                        { return nil }
func (silentDB) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (silentDB) Begin() (driver.Tx, error)                    { return silentDB{}, nil }
func (silentDB) Commit() error                                { return nil }
func (silentDB) Rollback() error                              { return nil }
func (silentDB) Close() error                                 { return nil }
func (silentDB) ExecContext(
	ctx context.Context, _ string, _ []driver.NamedValue,
) (driver.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// nothingElse adds nothing to the transaction of a rename.
func nothingElse(context.Context, *sql.Tx) error { return nil }

// A client that leaves doesn't end a rename, so it must end by itself.
func TestRenamingInADatabaseThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(silentDB{})
		defer db.Close()
		began := time.Now()
		err := (&origin{db: db, log: slog.New(slog.DiscardHandler)}).rename(t.Context(), audio,
			"Hi-fi", nothingElse)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
			took != renameTimeout {
			t.Errorf("error %v after %v", err, took)
		}
	})
}

// ways are the paths at which a replica shows the name of Audio.
var ways = []string{
	"/catalog.json", "/catalog", fmt.Sprintf("/categories/%d", audio), "/categories/1",
}

// sayInTheEnd waits until a replica shows this name at each of these paths.
func sayInTheEnd(t *testing.T, client *http.Client, url string, name int64) {
	t.Helper()
	for _, way := range ways {
		says := func() bool { return toldVersion(t, get(t, client, url+way)) == name || t.Failed() }
		if !until(5*time.Minute, func() { _ = wait(t.Context(), 20*time.Millisecond) }, says) {
			t.Fatalf("for 5 minutes %s didn't say name %d", way, name)
		}
	}
}

// If a category is renamed while Redis doesn't answer, it has its new name, and the client learns
// that other replicas may not know it yet. They are told when Redis answers again, without a
// further request.
func TestRenamingWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	proxy := redistest.StartProxy(t, redis.Addr())
	c := start(t, 2, "-origin-delay", "0s", "-ttl", "1h", "-redis", proxy.Addr())
	client := newClient(t)
	for _, url := range c.urls {
		sayInTheEnd(t, client, url, 0)
	}
	proxy.Blackhole(true)
	if status, said := rename(t, client, c.urls[0], audio,
		`{"name": "Audio 1"}`); status != http.StatusAccepted ||
		!strings.Contains(said, "Audio 1") {
		t.Errorf("status %d, %s", status, said)
	}
	proxy.Blackhole(false)
	for _, url := range c.urls {
		sayInTheEnd(t, client, url, 1)
	}
}

// If a process is killed after its commit and before the caches are told, the outbox contains the
// message, and another process delivers it.
func TestRenameOutlivesItsProcess(t *testing.T) {
	redis := redistest.Start(t)
	proxy := redistest.StartProxy(t, redis.Addr())
	file := filepath.Join(t.TempDir(), "shop.db")
	db := openTestDatabase(t, file)
	args := []string{
		"-addr", "127.0.0.1:0", "-db", file, "-ttl", "1h", "-origin-delay", "0s", "-redis",
	}
	// This process relays, because it is the first one.
	dying, url := startProcess(t, append(args, proxy.Addr())...)
	_, other := startProcess(t, append(args, redis.Addr())...)
	client := newClient(t)
	sayInTheEnd(t, client, other, 0)
	proxy.Blackhole(true)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := client.Post(fmt.Sprintf("%s/categories/%d", url, audio), "application/json",
			strings.NewReader(`{"name": "Audio 1"}`)); err == nil {
			t.Errorf("it was answered: %s", resp.Status)
			_ = resp.Body.Close()
		}
	}()
	// A test that waits in vain is ended by go test.
	for written := 0; written == 0; _ = wait(t.Context(), time.Millisecond) {
		if err := db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM cacheguard_outbox`).Scan(&written); err != nil {
			t.Fatal(err)
		}
	}
	if err := dying.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-answered
	if told := toldVersion(t, get(t, client, other+"/catalog.json")); told != 0 {
		t.Errorf("told name %d before anybody could be told", told)
	}
	sayInTheEnd(t, client, other, 1)
}

// startProcess starts the command as a separate process, and returns the address of its replica.
func startProcess(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=yes")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe() // see TestMain
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "replica 1 of 1: "); ok {
			return cmd, url
		}
	}
	t.Fatalf("it ended before it listened (%v)", lines.Err())
	return nil, ""
}

// The name of a category is text, also on the page.
func TestNamesAreText(t *testing.T) {
	c := start(t, 2, "-origin-delay", "0s")
	client := newClient(t)
	get(t, client, c.urls[1]+"/catalog")
	if status, said := rename(t, client, c.urls[0], audio,
		`{"name": "<script>alert(1)</script> & Ton"}`); status != http.StatusOK {
		t.Errorf("status %d, %s", status, said)
	}
	page := string(get(t, client, c.urls[1]+"/catalog"))
	if strings.Contains(page, "<script>") ||
		!strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt; &amp; Ton") {
		t.Error("the name is not written as text")
	}
}

// All replicas serve the same page, which is made once. A browser that already has it gets the
// answer that it hasn't changed.
func TestThePageIsMadeOnce(t *testing.T) {
	const replicas = 3
	c := start(t, replicas, "-origin-delay", "1s")
	client := newClient(t)
	pages := make([][]byte, 30)
	var group sync.WaitGroup
	for i := range pages {
		group.Go(func() { pages[i] = get(t, client, c.urls[i%replicas]+"/catalog") })
	}
	group.Wait()
	if different := slices.IndexFunc(pages, func(p []byte) bool {
		return !bytes.Equal(p, pages[0])
	}); different >= 0 {
		t.Errorf("page %d differs", different)
	}
	for _, want := range []string{"Electronics", "Audio", "Over-ear headphones"} {
		if !bytes.Contains(pages[0], []byte(">"+want+"<")) {
			t.Errorf("it lacks %s", want)
		}
	}
	if s := getStats(t, client, c.urls[0]); s.PageRuns != 1 || s.Loads != 1 {
		t.Errorf("%+v, want one run of the page and one load", s)
	}
	resp, err := client.Get(c.urls[2] + "/catalog")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	h := resp.Header
	if h.Get("Cache-Control") != "no-cache" || h.Get("ETag") == "" ||
		!strings.Contains(h.Get("Cache-Status"), "hit") || h.Get("Content-Security-Policy") == "" {
		t.Errorf("the page's fields: %v", h)
	}
	req, err := http.NewRequest(http.MethodGet, c.urls[1]+"/catalog", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("If-None-Match", h.Get("ETag"))
	if resp, err = client.Do(req); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotModified {
		t.Errorf("status %d for a browser that has it, want 304", resp.StatusCode)
	}
}

// For an id that doesn't exist the database is asked once, whichever replica gets the request. For
// an id that can't exist it isn't asked at all.
func TestUnknownCategories(t *testing.T) {
	c := start(t, 3, "-origin-delay", "0s")
	client := newClient(t)
	ask := func(url, id string) (int, string) {
		resp, err := client.Get(url + "/categories/" + id)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		said, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(said)
	}
	for range 5 {
		for _, url := range c.urls {
			if status, said := ask(url, "4711"); status != http.StatusNotFound ||
				!strings.Contains(said, "category 4711 does not exist") {
				t.Errorf("status %d, %s", status, said)
			}
		}
	}
	for _, url := range c.urls {
		for _, id := range []string{
			"0", "-1", "021", "+21", "2147483648", "99999999999999999999", "x", "%00", "21.0",
		} {
			if status, said := ask(url, id); status != http.StatusNotFound ||
				!strings.Contains(said, "ids are numbers") {
				t.Errorf("%s: status %d, %s", id, status, said)
			}
		}
	}
	if s := getStats(t, client, c.urls[0]); s.CategoryLoads != 1 {
		t.Errorf("%d loads, want 1", s.CategoryLoads)
	}
	for _, url := range c.urls {
		status, said := ask(url, fmt.Sprint(audio))
		want := `{"id":21,"parentId":1,"name":"Audio","children":[{"id":172,"parentId":21,"name":"Over-ear headphones"}`
		if status != http.StatusOK || !strings.HasPrefix(said, want) {
			t.Errorf("status %d, %s; want %s", status, said, want)
		}
	}
	if s := getStats(t, client, c.urls[0]); s.CategoryLoads != 2 {
		t.Errorf("%d loads, want 2", s.CategoryLoads)
	}
}
