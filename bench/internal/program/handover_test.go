package program

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// testPeers are wrong lockers that the benchmark must detect.
var testPeers = Peers{Lockers: []Locker{
	{Name: "everybody", Open: func(
		ctx context.Context, rdb *redis.Client,
	) (LockFunc, func(), error) {
		return func(context.Context, string) (func(context.Context) error, error) {
			return func(context.Context) error { return nil }, nil
		}, func() {}, nil
	}},
	{Name: "failing", Open: func(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
		return func(ctx context.Context, name string) (func(context.Context) error, error) {
			return func(context.Context) error { return nil }, rdb.Do(ctx, "NO.SUCH.COMMAND").Err()
		}, func() {}, nil
	}},
}}

func init() {
	testPeers.Contenders = []contender.Contender{
		{Name: "forgetful", What: "keeps nothing", Open: func(
			_ context.Context, r contender.Rig,
		) (contender.Protection, error) {
			return &forgetful{Rig: r}, nil
		}},
		{Name: "wrong", What: "says something else", Open: func(
			_ context.Context, r contender.Rig,
		) (contender.Protection, error) {
			return &forgetful{Rig: r, says: "something"}, nil
		}},
	}
}

// forgetful is a wrong contender: it loads each time, or it loads once and then returns a wrong
// value.
type forgetful struct {
	contender.Rig
	says   string
	loaded atomic.Bool
}

func (f *forgetful) Get(ctx context.Context, key string) (string, bool, error) {
	if f.says != "" && f.loaded.Swap(true) {
		return f.says, true, nil
	}
	return f.Load(ctx, key)
}

func (f *forgetful) Invalidate(context.Context, string) error { return nil }

func (f *forgetful) Close() error { return nil }

// quickly returns the options of a short run.
func quickly(addr string, args ...string) []string {
	return append([]string{"handover", "-redis", addr, "-contenders", "4", "-processes", "2",
		"-handovers", "20", "-alone", "20",
		"-hold", "1ms", "-spread", "0"}, args...)
}

func TestHandover(t *testing.T) {
	addr := redistest.Start(t).Addr()
	inOneOf(t, 3, func() (wrong []string) {
		code, stdout, stderr := bench(t,
			quickly(addr, "-lockers", "redislock,redislock-fair,broadcast", "-growth", "2,4",
				"-repeat", "2", "-json")...)
		var printed struct {
			Results handoverResults
		}
		if err := json.Unmarshal([]byte(stdout), &printed); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v, stderr %q", code, err, stderr)
		}
		messages := map[string]float64{"redislock": 1, "redislock-fair": 1, "broadcast": 2}
		for _, name := range []string{"redislock", "redislock-fair", "broadcast"} {
			ts, alone, growth := printed.Results.Handovers[name], printed.Results.Alone[name],
				printed.Results.Growth[name]
			if len(ts) != 2 || len(alone) != 2 || len(growth) != 2 {
				t.Errorf("%s: want two of each: %+v, %+v, %+v", name, ts, alone, growth)
				continue
			}
			for _, one := range ts {
				if one.P50 <= 0 || one.Max < one.P99 || one.Trips < 2 || one.Commands < 5 {
					t.Errorf("%s: %+v", name, one)
				}
				// If a lock was given back before the next holder was in the queue, no message is
				// needed. A message may also arrive late. A connection that was lost costs
				// commands. The calls of broadcast also ask after each pollEvery, however long they
				// wait.
				if one.Messages > messages[name]*1.2 || one.Messages < messages[name]*0.8 ||
					one.Commands > 40 && name != "broadcast" {
					wrong = append(wrong, fmt.Sprintf("%s: %+v", name, one))
				}
			}
			if alone[0].P50 <= 0 || alone[0].OverFloor <= 0 {
				t.Errorf("%s alone: %+v", name, alone[0])
			}
			if alone[0].Trips != 2 { // a command is sent again after a time-out
				wrong = append(wrong, fmt.Sprintf("%s alone: %+v", name, alone[0]))
			}
		}
		if fell := printed.Results.Growth["broadcast"]; fell[1].Messages < 1.5*fell[0].Messages {
			wrong = append(wrong,
				fmt.Sprintf("messages to all don't grow with the processes: %+v", fell))
		}
		floor := printed.Results.Alone[floor.Name]
		if len(floor) != 2 || floor[0].OverFloor != 1 {
			t.Fatalf("the floor: %+v", floor)
		}
		if floor[0].Commands != 2 {
			wrong = append(wrong, fmt.Sprintf("the floor: %+v", floor))
		}
		return wrong
	})
}

func TestHandoverTable(t *testing.T) {
	addr := redistest.Start(t).Addr()
	code, stdout, stderr := bench(t,
		quickly(addr, "-lockers", "poll", "-handovers", "2", "-growth", "2")...)
	if row := rowOf(stdout, "poll"); code != 0 || len(row) != 8 {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, stderr, stdout)
	}
}

func TestHandoverRefusesWrongLockers(t *testing.T) {
	addr := redistest.Start(t).Addr()
	for name, want := range map[string]string{
		"everybody": "contender", "failing": "unknown command",
	} {
		code, _, stderr := bench(t, quickly(addr, "-lockers", name, "-growth", "")...)
		if code != 1 || !strings.Contains(stderr, name) || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stderr %q", name, code, stderr)
		}
	}
}

func TestMessageCounter(t *testing.T) {
	stream := ">3\r\n$7\r\nmessage\r\n$4\r\nfree\r\n$3\r\none\r\n" +
		"*3\r\n$7\r\nmessage\r\n$4\r\nfree\r\n$7\r\nmessages\r\n" +
		"$8\r\nmessage!\r\n" + ">3\r\n$9\r\nsubscribe\r\n" +
		">3\r\n$7\r\nmessage\r\n$4\r\nfree\r\n$0\r\n\r\n"
	for size := 1; size <= len(stream); size++ {
		var total atomic.Int64
		c := messageCounter{total: &total}
		for rest := stream; rest != ""; {
			piece := rest[:min(size, len(rest))]
			c.see([]byte(piece))
			rest = rest[len(piece):]
		}
		if total.Load() != 3 {
			t.Errorf("in pieces of %d bytes: %d messages, want 3", size, total.Load())
		}
	}
}

func TestMedianOfRepetitions(t *testing.T) {
	of := func(v float64) float64 { return v }
	for want, values := range map[string][]float64{
		"-": nil, "7.0": {7}, "2.0 (1.0-3.0)": {3, 1, 2},
	} {
		if got := figure(values, "%.1f", of); got != want {
			t.Errorf("figure of %v is %q, want %q", values, got, want)
		}
	}
}
