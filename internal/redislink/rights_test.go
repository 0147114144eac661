package redislink

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// gate lets commands through when so many are there.
type gate struct {
	mu   sync.Mutex
	left int
	open chan struct{}
}

func (*gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gate) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.mu.Lock()
		if g.left--; g.left == 0 {
			close(g.open)
		}
		g.mu.Unlock()
		select {
		case <-g.open:
			cmd.(*redis.Cmd).SetVal("said")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A server that is far away is not asked for one right after another.
func TestRightsAreTriedSideBySide(t *testing.T) {
	commands := [][]any{{"GET", "k"}, {"SET", "k", ""}, {"DEL", "k"}, {"PTTL", "k"}}
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	rdb.AddHook(&gate{left: len(commands), open: make(chan struct{})})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i, tried := range tryAll(ctx, rdb, []string{"k"}, commands) {
		if tried.said != "said" || tried.err != nil {
			t.Errorf("%v: %+v", commands[i], tried)
		}
	}
}
