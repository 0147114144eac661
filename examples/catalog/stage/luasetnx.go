package stage

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// luasetnx is SETNX and EXPIRE in one script, so that no other command can run between them. It
// comes from the time when SET had no NX and EX.
//
// Its flaw is the same as that of setnxex: the lock has no owner.
type luasetnx struct{ setnx }

var setAndExpire = redis.NewScript(`
if redis.call('SETNX', KEYS[1], '1') == 1 then
  return redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 0`)

func (l *luasetnx) try(ctx context.Context) (bool, error) {
	set, err := setAndExpire.Run(ctx, l.Redis, []string{l.name}, l.LockTTL.Milliseconds()).Int()
	return set == 1, err
}
