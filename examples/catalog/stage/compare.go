package stage

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// compare is like owner, with GET and DEL in one script, so that no other command can run between
// them.
//
// Its flaw: if a load takes longer than the lock lasts, it goes on without the lock. A second load
// begins at the same time, and the first load's value, which is older, overwrites the second load's
// value.
type compare struct{ owner }

func newCompare(r *Replica, name string) *compare { return &compare{*newOwner(r, name)} }

var compareAndDelete = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`)

func (c *compare) unlock(ctx context.Context) error {
	deleted, err := compareAndDelete.Run(ctx, c.Redis, []string{c.name}, c.value).Int()
	if err != nil {
		return err
	}
	if deleted == 0 {
		return c.At(ctx, NotMine)
	}
	return c.At(ctx, Unlocked)
}
