package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// Without a limit to their wait, requests that learn of a failed second try late begin no third.
func TestLastTryWithoutWaitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c, err := New(store, Options{WaitTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		gate, runs := make(chan struct{}), 0
		h := c.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			<-gate
			http.Error(w, "no", http.StatusServiceUnavailable)
		}))
		for range 2 {
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			synctest.Wait()
		}
		close(gate)
		synctest.Wait()
		c.lastTries.mu.Lock()
		defer c.lastTries.mu.Unlock()
		if runs != 2 || len(c.lastTries.failed) != 1 {
			t.Errorf("%d runs; %d last tries are remembered", runs, len(c.lastTries.failed))
		}
	})
}

// A failed second try is remembered as long as a request may have waited for it, and not longer:
// its error may have a whole response.
func TestLastTriesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries lastTries
		failed, came := errors.New("failed"), time.Now()
		for i := range mostLastTries + 10 {
			tries.fail(fmt.Sprint(i), failed, time.Minute)
		}
		time.Sleep(59 * time.Second)
		tries.fail("late", failed, time.Minute)
		last := fmt.Sprint(mostLastTries + 9)
		if tries.failedSince(last, came) == nil || tries.failedSince("late", came) == nil ||
			tries.failedSince("0", came) != nil {
			t.Error("not the latest are remembered")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if tries.failedSince(last, came) != nil || tries.failedSince("late", came) == nil {
			t.Error("not only the late one is remembered after a minute")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		tries.mu.Lock()
		defer tries.mu.Unlock()
		if len(tries.failed)+len(tries.order) > 0 {
			t.Errorf("%d are remembered, %d in the ring", len(tries.failed), len(tries.order))
		}
	})
}
