package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// CommandStats returns how often each command was called since the server started or since
// ResetStats, by name in upper case ("GET", "CONFIG|GET"). It counts calls from scripts, but not
// refused calls. The server counts all commands, including a client's greeting (HELLO,
// CLIENT|SETINFO) and the commands of ResetStats and CommandStats themselves. In a cluster it asks
// one node.
func CommandStats(ctx context.Context, rdb interface {
	Info(ctx context.Context, sections ...string) *redis.StringCmd
}) (map[string]int64, error) {
	info, err := rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, fmt.Errorf("redistest: command stats: %w", err)
	}
	return parseCommandStats(info)
}

// ResetStats sets the server's counters to zero.
func ResetStats(ctx context.Context, rdb interface {
	ConfigResetStat(ctx context.Context) *redis.StatusCmd
}) error {
	if err := rdb.ConfigResetStat(ctx).Err(); err != nil {
		return fmt.Errorf("redistest: reset stats: %w", err)
	}
	return nil
}

// parseCommandStats reads lines such as
// "cmdstat_config|get:calls=2,usec=30,usec_per_call=15.00,...".
func parseCommandStats(info string) (map[string]int64, error) {
	stats := make(map[string]int64)
	for line := range strings.Lines(info) {
		entry, found := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_")
		if !found {
			continue
		}
		// A command's name may have a colon, for instance the name of a module's command.
		name, rest, found := strings.Cut(entry, ":calls=")
		if !found {
			return nil, fmt.Errorf("redistest: command stats: no calls in %q", line)
		}
		number, _, _ := strings.Cut(rest, ",")
		calls, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redistest: command stats: %q: %w", line, err)
		}
		stats[strings.ToUpper(name)] = calls
	}
	return stats, nil
}
