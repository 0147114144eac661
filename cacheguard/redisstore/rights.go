package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/report"
)

// rules returns the rights that a store needs in Redis' access control.
func (s *Store) rules() redislink.Rules {
	channels := s.names.channel() + " &" + s.names.inbox("*")
	return redislink.Rules{
		Package: "redisstore", Keys: s.opts.Prefix + ":*", Channel: channels, Sources: sources,
	}
}

// commands returns the commands of the scripts and of reads, with arguments that change nothing. It
// leaves out TYPE and ZREM, which only permits need.
func (s *Store) commands(k cacheguard.Key) [][]any {
	value, tags := s.names.value(k), s.names.generations(k.Cache)
	return [][]any{
		{"TIME"}, {"GET", value}, {"MGET", value}, {"SET", value, "", "XX", "PX", 1},
		{"DEL", value}, {"GETRANGE", value, 0, 0},
		{"SETRANGE", value, 0, ""}, {"PTTL", value}, {"PEXPIRE", value, 1},
		{"ZADD", tags, "XX", 0, ""}, {"ZSCORE", tags, ""}, {"ZMSCORE", tags, ""},
		{"ZRANGE", tags, 0, 0}, {"ZCARD", tags},
		{"ZREMRANGEBYSCORE", tags, 1, 0}, {"PUBLISH", s.names.inbox("try"), ""},
		{"PUBLISH", s.names.channel(), ""},
		{"PUBSUB", "NUMSUB", s.names.channel()},
	}
}

var scorelessLine = report.Line{Level: slog.LevelWarn,
	Text: "redisstore: reading generations takes a trip of its own", See: "a-right-is-missing",
	Means: "each read of a value with tags takes two trips to Redis"}

// scored logs once that generations can't be read along with values because a right is missing.
func (s *Store) scored(err error) {
	if redislink.Refused(err) && s.scoreless.CompareAndSwap(false, true) {
		scorelessLine.Log(context.Background(), s.opts.Logger, "process", s.name, "error",
			s.explained(err))
	}
}

var (
	errNode = errors.New(
		"this is a node of a Redis Cluster behind a client of a single server; make the client with" +
			" redis.NewClusterClient, or redis.NewUniversalClient with IsClusterMode")
	errSentinel = errors.New(
		"this is a Sentinel, which has no data; make the client with redis.NewFailoverClient")
	errReplica = errors.New(
		"this is a replica, which can't be written to; unless a failover is under way, give the client the address of the" +
			" master, or make it with redis.NewFailoverClient")
)

var ofCluster = regexp.MustCompile(
	`^(?:MOVED|ASK) \d|^CROSSSLOT|^CLUSTERDOWN|script: (?:MOVED|CROSSSLOT)`)

// explained adds the server and the cause to an error. If Redis refused the step, it also adds a
// remedy.
func (s *Store) explained(err error) error { return s.link.Told(s.advised(err)) }

func (s *Store) advised(err error) error {
	var told *redislink.Trouble
	switch {
	case err == nil || errors.As(err, &told):
		return err
	case s.link.IsCluster():
	case ofCluster.MatchString(err.Error()):
		return fmt.Errorf("%w: %w", errNode, err)
	case strings.Contains(err.Error(), "READONLY You can't write"):
		return fmt.Errorf("%w: %w", errReplica, err)
	}
	return s.rules().Explained(err)
}
