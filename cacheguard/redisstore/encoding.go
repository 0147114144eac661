package redisstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// holder returns the part of a lease's text that identifies its grant.
func (s *Store) holder(g cacheguard.Grant) string {
	return s.token(g.Token) + strconv.FormatInt(g.Number, 10)
}

// token returns a load's id as a lease has it. Capital letters mean that the lease's holder knows
// of inboxes. To a program that doesn't know inboxes, a token in capitals and the same token in
// small letters are different.
func (s *Store) token(id cacheguard.ID) string {
	if s.inbox == "" {
		return id.String()
	}
	return strings.ToUpper(id.String())
}

// millis returns a duration in milliseconds, as it is sent to Redis. For a positive duration it
// returns at least 1, because Redis accepts no TTL of zero.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(d.Milliseconds(), 1)
}

func parseLease(reply []any, token cacheguard.ID) (ans cacheguard.LeaseAnswer, err error) {
	text := func(i int) string {
		if i >= len(reply) {
			return ""
		}
		s, _ := reply[i].(string)
		return s
	}
	number := func(i int) int64 {
		if i >= len(reply) {
			return 0
		}
		n, _ := reply[i].(int64)
		return n
	}
	left := func(i int) time.Duration { return duration(number(i)) }
	switch text(0) {
	case "granted":
		ans.State = cacheguard.LeaseGranted
		ans.Grant, err = grant(token, text(1))
		ans.Failures = int(min(max(number(2), 0), mostFailures))
		if ans.Stands = len(reply) > 3 && reply[3] != nil && err == nil; ans.Stands {
			ans.Of = generationsIn(reply[3])
		}
	case "held":
		ans.State, ans.Holder, ans.Remaining = cacheguard.LeaseHeld, parseID(text(1)), left(2)
	case "value":
		ans.State = cacheguard.LeaseValue
		if f := text(1); f != "" {
			ans.Frame = []byte(f)
		}
		if len(reply) > 2 {
			ans.Of = generationsIn(reply[2])
		}
	case "outcome":
		var ok bool
		ans.State, ans.Holder, ans.Remaining = cacheguard.LeaseOutcome, parseID(text(1)), left(2)
		if letter := text(3); len(letter) == 1 {
			ans.Outcome, ok = decodeOutcome(letter[0], text(4))
		}
		if !ok {
			// Written by a later version: the caller loads.
			ans.Outcome = cacheguard.Outcome{Kind: cacheguard.OutcomeUnshared}
		}
	default:
		err = fmt.Errorf("redisstore: the lease script answered %q", reply)
	}
	return ans, err
}

func parseFill(reply string) (cacheguard.FillAnswer, error) {
	switch reply {
	case "stored":
		return cacheguard.FillStored, nil
	case "gone":
		return cacheguard.FillGone, nil
	case "other":
		return cacheguard.FillOther, nil
	}
	return 0, fmt.Errorf("redisstore: the fill script answered %q", reply)
}

func parseHolding(reply string) (cacheguard.Holding, error) {
	switch reply {
	case "mine":
		return cacheguard.HoldingMine, nil
	case "gone":
		return cacheguard.HoldingGone, nil
	case "other":
		return cacheguard.HoldingOther, nil
	}
	return 0, fmt.Errorf("redisstore: the renew script answered %q", reply)
}

func grant(token cacheguard.ID, number string) (cacheguard.Grant, error) {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n >= pastAll {
		return cacheguard.Grant{}, fmt.Errorf("redisstore: a lease has the number %q", number)
	}
	return cacheguard.Grant{Token: token, Number: n}, nil
}

// parseID reads the id of a load. If s is not an id, it returns the zero id, which names no load.
func parseID(s string) (id cacheguard.ID) {
	if b, err := hex.DecodeString(s); err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// mostWait is the longest duration that is accepted from Redis; no option of a cache is longer.
const mostWait = 10 * 365 * 24 * time.Hour

// mostFailures is the largest number of failures in a row that is reported. The back-off stops
// growing long before this number.
const mostFailures = 1 << 20

// duration converts a number of milliseconds from Redis into a duration.
func duration(millis int64) time.Duration {
	return time.Duration(min(max(millis, 0), mostWait.Milliseconds())) * time.Millisecond
}

// isWrongType reports whether a name has data of another type than the command works on.
func isWrongType(err error) bool { return answered(err, "WRONGTYPE") }

// isTryAgain reports whether some of a command's names are on another node.
func isTryAgain(err error) bool { return answered(err, "TRYAGAIN") }

func answered(err error, code string) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), code)
}
