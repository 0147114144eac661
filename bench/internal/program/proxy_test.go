package program

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// startProxy runs the command. It returns the command's address, a function that stops it, and a
// function that waits for its end.
func startProxy(
	t *testing.T, args ...string,
) (address string, stop func(), end func() (code int, stderr string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	out, stdout := io.Pipe()
	var stderr strings.Builder
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, Peers{}, append([]string{"proxy"}, args...), strings.NewReader(""), stdout,
			&stderr)
		_ = stdout.Close()
		ended <- code
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the proxy ends with %d before it listens: %s", <-ended, &stderr)
	}
	return strings.TrimSpace(address), cancel, func() (int, string) {
		return <-ended, stderr.String()
	}
}

func TestProxy(t *testing.T) {
	for name, args := range map[string]func(t *testing.T) []string{
		"memory": func(*testing.T) []string { return nil },
		"redis": func(t *testing.T) []string {
			t.Setenv(contender.OpTimeoutEnv, "3s") // more than the default LeaseTTL would be logged
			return []string{"-redis", redistest.Start(t).Addr()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			origin := httptest.NewServer(http.HandlerFunc(func(
				w http.ResponseWriter, r *http.Request,
			) {
				w.Header().Set("Last-Modified", "Sat, 21 Nov 2020 10:00:00 GMT")
				fmt.Fprintf(w, "%s of run %d, ", r.RequestURI, runs.Add(1))
				_ = http.NewResponseController(w).Flush() // so that the length is not known
				fmt.Fprint(w, "whole")
			}))
			defer origin.Close()
			address, stop, end := startProxy(t,
				append(args(t), "-origin", origin.URL, "-heuristic", "0.1")...)
			for range 3 {
				response, err := http.Get(address + "/list?a;b=%zz")
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || string(body) != "/list?a;b=%zz of run 1, whole" {
					t.Errorf("got %q, %v", body, err)
				}
			}
			stop()
			if code, stderr := end(); code != 0 || stderr != "" {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
		})
	}
}

func TestProxyEndsInTime(t *testing.T) {
	_, _, end := startProxy(t, "-origin", "http://127.0.0.1:1", "-time", "10ms")
	if code, stderr := end(); code != 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}
