package redislink

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Exec sends a pipeline and sets the error of each of its commands. If a server refuses the
// connection with an error, for instance because of a wrong password, go-redis returns that error
// only for the pipeline. None of the commands was sent, but they look as if they had been answered.
func Exec(ctx context.Context, pipe redis.Pipeliner) ([]redis.Cmder, error) {
	cmds, err := pipe.Exec(ctx)
	if err != nil &&
		!slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return cmds, err
}
