package redisstore

import "github.com/cacheguard/cacheguard/internal/redislink"

// rules are what a store needs of Redis' access control.
func (s *Store) rules() redislink.Rules {
	return redislink.Rules{Package: "redisstore", Keys: s.opts.Prefix + ":*", Channel: s.names.channel(), Sources: sources}
}

// scored says once if it is for want of a right that generations can't be read along with values.
func (s *Store) scored(err error) {
	if redislink.Refused(err) && s.scoreless.CompareAndSwap(false, true) {
		s.opts.Logger.Warn("redisstore: reading generations takes a trip of its own", "process", s.name, "error", s.rules().Explained(err))
	}
}
