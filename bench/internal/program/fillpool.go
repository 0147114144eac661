package program

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// fillPool has a client dial all the connections that its pool may have, as that of a program has
// which has run for a while: or whoever needs one for each caller would be measured with dialling,
// and whoever needs few would not.
func fillPool(ctx context.Context, rdb *redis.Client) error {
	var errs []error
	var all []*redis.Conn
	for range rdb.Options().PoolSize {
		c := rdb.Conn()
		all = append(all, c)
		errs = append(errs, c.Ping(ctx).Err())
	}
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
