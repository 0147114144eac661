package contender

import (
	"context"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// stages returns the stages of the example that need only one Redis. It leaves out none and
// cacheguard, which are contenders of their own, leaky, which is none without the null sentinel,
// and forever, which is compare without a TTL.
func stages() []Contender {
	var all []Contender
	for _, s := range stage.All() {
		if s.Needs == "" &&
			!slices.Contains([]string{"none", "cacheguard", "leaky", "forever"}, s.Name) {
			all = append(all, Contender{
				Name: "stage-" + s.Name, What: "a stage of the example, " + s.Title, Note: s.Flaw,
				Open: openStage(s.Name),
			})
		}
	}
	return all
}

// staged is a stage of the example.
type staged struct{ stage.Protection }

func openStage(name string) func(context.Context, Rig) (Protection, error) {
	return func(ctx context.Context, r Rig) (Protection, error) {
		p, err := stage.Open(name, &stage.Replica{
			Redis: r.Redis,
			Load: func(ctx context.Context, key string) (string, error) {
				value, _, err := r.Load(ctx, key)
				return value, err
			},
			At:  func(context.Context, stage.Point) error { return nil },
			Now: time.Now, LockTTL: r.LockTTL, CacheTTL: r.TTL, Spin: r.PollTime,
		})
		if err != nil {
			return nil, err
		}
		return staged{p}, r.Redis.Ping(ctx).Err()
	}
}

func (s staged) Get(ctx context.Context, key string) (string, bool, error) {
	value, err := s.Protection.Get(ctx, key)
	return value, value != "", err
}

func (s staged) Invalidate(ctx context.Context, key string) error { return s.Changed(ctx, key) }
