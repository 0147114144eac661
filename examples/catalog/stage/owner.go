package stage

import (
	"context"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// owner sets a unique value, and checks that the lock still has this value before it deletes the
// lock.
//
// Its flaw: between GET and DEL the lock may expire, and another request may get it.
type owner struct {
	*Replica
	name, value string
}

func newOwner(r *Replica, name string) *owner { return &owner{r, name, uuid.NewString()} }

func (o *owner) try(ctx context.Context) (bool, error) {
	return o.Redis.SetNX(ctx, o.name, o.value, o.LockTTL).Result()
}

func (o *owner) unlock(ctx context.Context) error {
	holder, err := o.Redis.Get(ctx, o.name).Result()
	if err != nil && err != redis.Nil {
		return err
	}
	if holder != o.value {
		return o.At(ctx, NotMine)
	}
	if err := o.At(ctx, Compared); err != nil {
		return err
	}
	return o.del(ctx, o.name)
}
