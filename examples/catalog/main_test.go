package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

// catalog is a running command.
type catalog struct {
	redis string   // the command's output about Redis
	urls  []string // of the replicas
	// Stops the command like a signal, waits for its end, and fails the test after an error.
	stop func()

	stderr bytes.Buffer // read it only after stop
}

// start runs the command until the test ends and returns once every replica listens.
func start(t *testing.T, replicas int, args ...string) *catalog {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	output, stdout := io.Pipe()
	c := &catalog{}
	code := make(chan int, 1)
	go func() {
		defer stdout.Close()
		code <- run(ctx,
			append([]string{"-addr", "127.0.0.1:0", "-replicas", fmt.Sprint(replicas)}, args...),
			stdout, &c.stderr)
	}()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if got := <-code; got != 0 {
			t.Errorf("exit code %d, on stderr: %s", got, &c.stderr)
		}
	})
	t.Cleanup(c.stop)

	lines := bufio.NewScanner(output)
	for len(c.urls) < replicas && lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(),
			fmt.Sprintf("replica %d of %d: ", len(c.urls)+1, replicas)); ok {
			c.urls = append(c.urls, url)
		} else {
			c.redis = lines.Text()
		}
	}
	go io.Copy(io.Discard, output)
	if len(c.urls) < replicas {
		c.stop()
		t.Fatalf("%d of %d replicas have announced themselves", len(c.urls), replicas)
	}
	return c
}

// get returns the body of a page. The page must exist.
func get(t *testing.T, client *http.Client, url string) []byte {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: status %d (%v): %.200s", url, resp.StatusCode, err, body)
	}
	return body
}

func getStats(t *testing.T, client *http.Client, url string) stats {
	t.Helper()
	var s stats
	if err := json.Unmarshal(get(t, client, url+"/stats.json"), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// newClient returns a client whose connections end with the test.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// This is the promise that the example demonstrates: many clients ask all replicas at once for a
// map that isn't cached, and the database is asked once.
func TestStampedeOnTheColdMapIsOneLoad(t *testing.T) {
	const replicas, requests = 4, 500
	// The load takes so long that on any machine all requests arrive before its end.
	c := start(t, replicas, "-origin-delay", "2s", "-ttl", "1h")
	client := newClient(t)

	bodies := make([][]byte, requests)
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i := range bodies {
		group.Go(func() {
			<-begin
			bodies[i] = get(t, client, c.urls[i%replicas]+"/catalog.json")
		})
	}
	close(begin)
	group.Wait()
	if t.Failed() {
		return
	}

	for i, body := range bodies {
		if !bytes.Equal(body, bodies[0]) {
			t.Fatalf("body %d differs from the first one", i)
		}
	}
	var m categoryMap
	if err := json.Unmarshal(bodies[0], &m); err != nil || len(m) != 20 {
		t.Errorf("%d level-1 categories (%v), want 20", len(m), err)
	}

	s := getStats(t, client, c.urls[1])
	if s.Loads != 1 {
		t.Errorf("%d loads, want 1", s.Loads)
	}
	if len(s.Replicas) != replicas {
		t.Fatalf("stats of %d replicas, want %d", len(s.Replicas), replicas)
	}
	asked := 0
	for i, r := range s.Replicas {
		if r.Address != c.urls[i] || r.Requests != requests/replicas {
			t.Errorf("replica %d: %+v, want %s with %d requests", i+1, r, c.urls[i],
				requests/replicas)
		}
		if sum := r.Results.Hit + r.Results.Coalesced + r.Results.Loaded; sum != r.Requests {
			t.Errorf("replica %d: %d results of %d requests", i+1, sum, r.Requests)
		}
		if r.LeaseRequests > 0 {
			asked++
		}
	}
	if asked < 2 {
		t.Errorf("%d replicas asked for the lease, want at least 2: %+v", asked, s.Replicas)
	}
	t.Logf("%+v", s)
}

func TestAWarmMapIsServedFromTheCache(t *testing.T) {
	c := start(t, 2, "-origin-delay", "0s")
	client := newClient(t)
	first := get(t, client, c.urls[0]+"/catalog.json")
	second := get(t, client, c.urls[1]+"/catalog.json")
	if !bytes.Equal(first, second) {
		t.Error("the replicas differ")
	}
	if s := getStats(t, client, c.urls[0]); s.Loads != 1 || s.Replicas[1].Results.Hit != 1 {
		t.Errorf("stats %+v, want one load and a hit on the second replica", s)
	}
}

func TestTheMapIsLoadedAgainAfterItsTTL(t *testing.T) {
	c := start(t, 1, "-origin-delay", "0s", "-ttl", "50ms")
	client := newClient(t)
	for getStats(t, client, c.urls[0]).Loads < 2 { // a test that waits in vain is ended by go test
		get(t, client, c.urls[0]+"/catalog.json")
	}
}

// Leases need expiry, because the lease of a replica that died must end.
func TestTheEmbeddedRedisForgetsWhatHasExpired(t *testing.T) {
	f, err := openFleet(t.Context(),
		options{host: "127.0.0.1", replicas: 1, ttl: 50 * time.Millisecond, stage: ownStage},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := f.embedded.Set("lease", "mine"); err != nil {
		t.Fatal(err)
	}
	f.embedded.SetTTL("lease", 50*time.Millisecond)
	for f.embedded.Exists("lease") { // a test that waits in vain is ended by go test
	}
}

func TestANamedRedisIsUsed(t *testing.T) {
	redis := miniredis.RunT(t)
	c := start(t, 1, "-origin-delay", "0s", "-redis", redis.Addr())
	get(t, newClient(t), c.urls[0]+"/catalog.json")
	if len(redis.Keys()) == 0 {
		t.Error("it has no key")
	}
	if !strings.Contains(c.redis, redis.Addr()) || strings.Contains(c.redis, "embedded") {
		t.Errorf("announced as %q, want %s", c.redis, redis.Addr())
	}
}

func TestRequestsMayFinishWhenTheCommandIsStopped(t *testing.T) {
	c := start(t, 2, "-origin-delay", "1s")
	client := newClient(t)
	var group sync.WaitGroup
	group.Go(func() { get(t, client, c.urls[0]+"/catalog.json") })
	other := newClient(t)
	for getStats(t, other, c.urls[1]).Loads == 0 {
	}
	c.stop()
	group.Wait()
	for line := range strings.Lines(c.stderr.String()) {
		// On a busy machine a subscription may have no answer for a while.
		if !strings.Contains(line, "redisstore: messages") {
			t.Errorf("on stderr: %s", line)
		}
	}
	if resp, err := other.Get(c.urls[1]); err == nil {
		resp.Body.Close()
		t.Error("a replica still answers")
	}
}

// If stopping the command takes long, the log names the reason. No handler goes on while its caches
// are closed.
func TestRequestsThatDontFinishAreNamed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	r := &replica{url: "http://" + listener.Addr().String(), listener: listener,
		server: &http.Server{
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				close(begun)
				<-r.Context().Done()
				close(ended)
			}),
		}}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-begun
		stop()
	}()
	var asking sync.WaitGroup
	asking.Go(func() {
		if resp, err := newClient(t).Get(r.url); err == nil {
			resp.Body.Close()
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	if err := r.serve(ctx, time.Millisecond); err == nil ||
		!strings.Contains(err.Error(), r.url+": requests went on for more than 1ms") {
		t.Errorf("error %v", err)
	}
	<-ended
	asking.Wait()
}

// Browsers open connections in advance.
func TestAConnectionWithoutARequestHoldsUpNobody(t *testing.T) {
	var took time.Duration
	for range 3 { // the machine may stand still
		c := start(t, 1)
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.urls[0], "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		get(t, newClient(t), c.urls[0]+"/stats.json") // its connection is accepted after the other
		begin, closed := time.Now(), make(chan time.Duration, 1)
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			closed <- time.Since(begin)
		}()
		c.stop()
		took = waittest.Next(t, "the connection's end", closed)
		if took <= 4*time.Second { // by itself net/http closes it when it is 5 s old
			return
		}
	}
	t.Errorf("the connection was closed after %v", took)
}

func TestATakenPortIsNamed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	checkFailure(t, taken.Addr().String(), "-addr", taken.Addr().String())
}

func TestAServerThatIsNoRedisIsNamed(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
	checkFailure(t, "redis at "+other.Addr().String(), "-addr", "127.0.0.1:0", "-redis",
		other.Addr().String())
	other.Close()
	group.Wait()
}

func TestASignalBeforeItIsUpIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, []string{"-addr", "127.0.0.1:0"}, &stdout, &stderr); code != 0 ||
		stderr.Len() > 0 {
		t.Errorf("exit code %d, on stderr: %s", code, &stderr)
	}
}

// checkFailure runs the command. It must fail with a message that contains want.
func checkFailure(t *testing.T, want string, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), args, &stdout, &stderr); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
		t.Errorf("on stderr: %s\nwant %q in it; on stdout: %s", &stderr, want, &stdout)
	}
}
