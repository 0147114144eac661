package redislink

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Exec sends a pipeline, and has each of its commands say its error. Where a server refuses a
// connection in words, as by a wrong password, go-redis says so of the pipeline alone, and the
// commands, of which none was sent, look as if they had been answered.
func Exec(ctx context.Context, pipe redis.Pipeliner) ([]redis.Cmder, error) {
	cmds, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return cmds, err
}
