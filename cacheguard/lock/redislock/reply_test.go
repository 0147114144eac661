package redislock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// If the reply to an Unlock is lost, Unlock sends its request again, and doesn't report a loss
// because its first request has already given the lock back. The test covers a broken connection,
// where the client itself repeats the request, a silent connection, and a next holder that already
// has the lock.
func TestUnlockReplyIsLost(t *testing.T) {
	const prefix, name = "unlocks", "n"
	for how, then := range map[string]redistest.Then{
		"hangup": redistest.Hangup, "silence": redistest.Silence,
	} {
		for _, contended := range []bool{false, true} {
			t.Run(fmt.Sprint(how, contended), func(t *testing.T) {
				addr := redistest.Shared(t).Addr()
				proxy := redistest.StartProxy(t, addr)
				// After a half of OpTimeout without a reply, there is the other half.
				opts := redislock.Options{Prefix: prefix, OpTimeout: 3 * time.Second}
				a, b := locker(t, proxy.Addr(), opts), locker(t, addr, opts)
				held := locked(t, a, name)
				var waits *call
				if contended {
					waits = calls(t.Context(), b, name)
					line(t, client(t, addr), prefix, name, 1)
				}
				lost := proxy.DropReply(redistest.IsEval(redislock.ReleaseScript), then)
				if err := held.Unlock(context.Background()); err != nil {
					t.Errorf("Unlock says %v", err)
				}
				<-lost.Struck()
				if contended {
					unlock(t, waits.lock(t))
				}
			})
		}
	}
}
