package contender

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// xfetch is XFetch with a beta of 1 in each process, and without a lease between processes. A
// stored value contains its expiry and the time that its load took. Each reader draws a random
// number. If it decides to refresh early, the load runs in the background.
type xfetch struct {
	ReadThrough
	reads, loads single // used only for their groups
	behind       sync.WaitGroup
}

func openXFetch(ctx context.Context, r Rig) (Protection, error) {
	return &xfetch{ReadThrough: ReadThrough{r}}, r.Redis.Ping(ctx).Err()
}

func (x *xfetch) Get(ctx context.Context, key string) (string, bool, error) {
	stored, _, err := x.reads.fly(key, func() (string, bool, error) { return x.Look(ctx, key) })
	if errors.Is(err, redis.Nil) {
		return x.renew(ctx, key, "")
	} else if err != nil {
		return "", false, err
	}
	expiry, took, value := parseXFetch(stored)
	if float64(time.Now().UnixNano())-took*math.Log(rand.Float64()) >= expiry {
		x.behind.Go(func() { _, _, _ = x.renew(ctx, key, value) })
	}
	return value, true, nil
}

func (x *xfetch) renew(ctx context.Context, key, old string) (string, bool, error) {
	return x.loads.fly(key, func() (string, bool, error) {
		began := time.Now()
		value, found, err := x.Renew(ctx, key, old)
		if err != nil || !found {
			return "", false, err
		}
		now := time.Now()
		head := fmt.Sprintf("%d %d ", now.Add(x.TTL).UnixNano(), now.Sub(began))
		return value, true, x.Redis.Set(context.WithoutCancel(ctx), key, head+value, x.TTL).Err()
	})
}

func (x *xfetch) Close() error {
	x.behind.Wait()
	return nil
}

func parseXFetch(stored string) (expiry, took float64, value string) {
	first, rest, _ := strings.Cut(stored, " ")
	second, value, _ := strings.Cut(rest, " ")
	expiry, _ = strconv.ParseFloat(first, 64)
	took, _ = strconv.ParseFloat(second, 64)
	return expiry, took, value
}
