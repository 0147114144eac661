package redisstore

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	refusal         = regexp.MustCompile(`NOPERM|The user executing the script can't|ACL failure`)
	refusedCommand  = regexp.MustCompile(`to run the '([^']+)' command`)
	refusedChannel  = regexp.MustCompile(`access (?:a|one of the) channel|publish to the channel`)
	refusedKey      = regexp.MustCompile(`access (?:a|one of the|at least one of the) key`)
	refusedInScript = regexp.MustCompile(`script: ([0-9a-f]{40}), on @user_script:(\d+)`)
	commandOfLine   = regexp.MustCompile(`redis\.p?call\('(\w+)'`)
)

// scored says once if it is for want of a right that generations can't be read along with values.
func (s *Store) scored(err error) {
	if err != nil && refusal.MatchString(err.Error()) && s.scoreless.CompareAndSwap(false, true) {
		s.opts.Logger.Warn("redisstore: reading generations takes a trip of its own", "process", s.name, "error", explained(s, err))
	}
}

// explained adds to a refusal by Redis' access control which rule would allow the step.
func explained(s *Store, err error) error {
	text := err.Error()
	if !refusal.MatchString(text) {
		return err
	}
	switch command := refusedCommand.FindStringSubmatch(text); {
	case command != nil:
		return fmt.Errorf("the Redis user lacks +%s: %w", command[1], err)
	case refusedChannel.MatchString(text):
		return fmt.Errorf("the Redis user lacks &%s: %w", s.names.channel(), err)
	case refusedKey.MatchString(text):
		return fmt.Errorf("the Redis user lacks ~%s:*: %w", s.opts.Prefix, err)
	}
	if command := commandInScript(text); command != "" {
		return fmt.Errorf("the Redis user lacks +%s: %w", strings.ToLower(command), err)
	}
	return fmt.Errorf("the Redis user lacks one of the rights in the documentation of redisstore: %w", err)
}

// commandInScript finds the command that was refused inside a script. Redis only says on which line.
func commandInScript(text string) string {
	where := refusedInScript.FindStringSubmatch(text)
	if where == nil {
		return ""
	}
	n, _ := strconv.Atoi(where[2])
	for i, script := range scripts {
		if script.Hash() != where[1] {
			continue
		}
		if lines := strings.Split(sources[i], "\n"); n >= 1 && n <= len(lines) {
			if command := commandOfLine.FindStringSubmatch(lines[n-1]); command != nil {
				return command[1]
			}
		}
	}
	return ""
}
