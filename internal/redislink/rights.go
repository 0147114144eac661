package redislink

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var (
	refusal        = regexp.MustCompile(`NOPERM|The user executing the script can't|ACL failure`)
	refusedCommand = regexp.MustCompile(`to run the '([^']+)' command`)
	refusedChannel = regexp.MustCompile(`access (?:a|one of the) channel|publish to the channel`)
	refusedKey     = regexp.MustCompile(`access (?:a|one of the|at least one of the) key`)
	// Redis 7, and 6.
	lineOfScript = regexp.MustCompile(
		`(?:script: |call to f_)([0-9a-f]{40}).*@user_script: ?(\d+)`)
	commandOfLine = regexp.MustCompile(`redis\.p?call\('(\w+)'(?:, KEYS\[(\d)\])?`)
)

// Sources are the lines of scripts, by the script's hash. They are needed because Redis reports
// only the number of the line in which an error occurred.
type Sources map[string][]string

// NewSources returns the sources of scripts with these texts.
func NewSources(texts ...string) Sources {
	s := make(Sources)
	for _, text := range texts {
		hash := sha1.Sum([]byte(text))
		s[hex.EncodeToString(hash[:])] = strings.Split(text, "\n")
	}
	return s
}

// failed returns the command that has failed in a script, and the number of the script's key that
// the command used. If the key isn't known, the number is 0.
func (s Sources) failed(text string) (command string, key int) {
	where := lineOfScript.FindStringSubmatch(text)
	if where == nil {
		return "", 0
	}
	lines := s[where[1]]
	if n, _ := strconv.Atoi(where[2]); n >= 1 && n <= len(lines) {
		if found := commandOfLine.FindStringSubmatch(lines[n-1]); found != nil {
			key, _ = strconv.Atoi(found[2])
			return strings.ToLower(found[1]), key
		}
	}
	return "", 0
}

// Rules are the rights that a package needs in Redis' access control.
type Rules struct {
	Package string  // the package that needs the rights
	Keys    string  // pattern of the package's keys
	Channel string  // pattern or name of the package's channels
	Sources Sources // sources of the package's scripts
}

// errRights is the beginning of errors that name the rights that a user lacks.
var errRights = errors.New("the Redis user lacks")

// lacking is a refusal by access control, with the rule that would allow the step.
type lacking struct {
	right string
	err   error
}

func (l lacking) Error() string   { return fmt.Sprintf("%v %s: %v", errRights, l.right, l.err) }
func (l lacking) Unwrap() []error { return []error{errRights, l.err} }

// Lacks returns the rule, such as +del.
func (l lacking) Lacks() string { return l.right }

// ErrReplica says that a server can't be used because it accepts no writes.
var ErrReplica = errors.New("this is a replica, which can't be written to")

// Refused reports whether an error is a refusal by Redis' access control.
func Refused(err error) bool {
	return err != nil && (errors.Is(err, errRights) || refusal.MatchString(err.Error()))
}

// Explained adds information to an error that Redis leaves out. To a refusal by access control it
// adds the rule that would allow the step. To an error about a wrong type it adds the step's key
// that has the wrong type.
func (r Rules) Explained(err error, keys ...any) error {
	switch {
	case errors.Is(err, errRights):
		return err
	case Refused(err):
		command, _ := r.Sources.failed(answerOf(err))
		if right := r.missing(err.Error(), command); right != "" {
			return lacking{right, err}
		}
		return fmt.Errorf("%w one of the rights that %s needs (docs/redis.md, docs/locks.md): %w",
			errRights, r.Package, err)
	case err != nil && len(keys) > 0 && strings.Contains(err.Error(), "WRONGTYPE"):
		command, key := r.Sources.failed(answerOf(err))
		if key > 0 && key <= len(keys) {
			return fmt.Errorf(
				"the key %q holds something else than the %s that %s keeps there; delete it: %w",
				keys[key-1], typeFor(command), r.Package, err)
		}
		return fmt.Errorf(
			"one of the keys %q holds something else than what %s keeps there; delete it: %w", keys,
			r.Package, err)
	}
	return err
}

// missing returns the rule that would allow the refused step, or an empty string. command is the
// refused command, if it is known.
func (r Rules) missing(text, command string) string {
	if named := refusedCommand.FindStringSubmatch(text); named != nil {
		return "+" + named[1]
	}
	switch {
	case refusedChannel.MatchString(text):
		return "&" + r.Channel
	case refusedKey.MatchString(text):
		return "~" + r.Keys
	case command != "":
		return "+" + command
	}
	return ""
}

// typeFor returns the type of data that a command works on.
func typeFor(command string) string {
	switch {
	case strings.HasPrefix(command, "z"):
		return "sorted set"
	case strings.HasPrefix(command, "h"):
		return "hash"
	default:
		return "string"
	}
}

//go:embed try.lua
var tryLua string

var tryScript = redis.NewScript(tryLua)

// Try tries the commands of scripts, and the other rights that scripts and messages need. Its error
// names all rights that the user lacks, in the form that ACL SETUSER takes. The error wraps
// ErrReplica if the server is a replica. A command that fails for another reason counts as allowed.
// So the commands need not change anything. key must be in the slot of all their keys, because in a
// cluster the node of this slot is asked. If ctx ends first, or if a step fails for another reason,
// the error names the step.
func (r Rules) Try(
	ctx context.Context, rdb redis.UniversalClient, key, channel string, commands ...[]any,
) error {
	var lacks []string
	var first, replica error // the first refusal; the error of a server that is a replica
	note := func(err error, command string) (other error) {
		if !Refused(err) {
			return err
		}
		first = cmp.Or(first, err)
		if right := r.missing(err.Error(), command); right != "" && !slices.Contains(lacks, right) {
			lacks = append(lacks, right)
		}
		return nil
	}
	keys := []string{key}
	for name, do := range steps(rdb, keys, channel) {
		_, err := Aside(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, do(ctx)
		})
		if err = note(err, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for i, t := range tryAll(ctx, rdb, keys, commands) {
		name := strings.ToLower(fmt.Sprint(commands[i][0]))
		if name == "pubsub" { // each of its subcommands is a right of its own
			name += "|" + strings.ToLower(fmt.Sprint(commands[i][1]))
		}
		if Refused(t.err) { // scripts can't be run at all, which is recorded already
			break
		}
		if t.err != nil {
			return fmt.Errorf("%s: %w", name, t.err)
		}
		if said := note(errors.New(t.said), name); said != nil &&
			strings.Contains(t.said, "READONLY You can't write") {
			replica = fmt.Errorf("%w: %w", ErrReplica, said)
		}
	}
	if len(lacks) == 0 {
		return replica
	}
	return errors.Join(fmt.Errorf("%w %s: %w", errRights, strings.Join(lacks, " "), first), replica)
}

// tried is the result of a command in a script: the error of the command, or the error of running
// the script.
type tried struct {
	said string
	err  error
}

// tryAll tries each command in a script. It runs all scripts at the same time, because each script
// takes a trip.
func tryAll(
	ctx context.Context, rdb redis.UniversalClient, keys []string, commands [][]any,
) []tried {
	all := make([]tried, len(commands))
	var trying sync.WaitGroup
	for i, command := range commands {
		trying.Go(func() {
			all[i].said, all[i].err = Aside(ctx, func(ctx context.Context) (string, error) {
				said, err := tryScript.Run(ctx, rdb, keys, command...).Text()
				if Refused(err) { // refused to run the script by its hash
					said, err = tryScript.Eval(ctx, rdb, keys, command...).Text()
				}
				return said, err
			})
		})
	}
	trying.Wait()
	return all
}

// steps returns the steps that scripts and messages need besides the commands of the scripts, each
// with its name.
func steps(
	rdb redis.UniversalClient, keys []string, channel string,
) iter.Seq2[string, func(context.Context) error] {
	return func(yield func(string, func(context.Context) error) bool) {
		const unknown = "0000000000000000000000000000000000000000" // hash of no script
		_ = yield("script|load", func(ctx context.Context) error {
			return tryScript.Load(ctx, rdb).Err()
		}) &&
			yield("evalsha", func(ctx context.Context) error {
				return known(rdb.EvalSha(ctx, unknown, keys).Err())
			}) &&
			yield("eval", func(ctx context.Context) error {
				return rdb.Eval(ctx, "return 1", keys).Err()
			}) &&
			yield("ping", func(ctx context.Context) error { return rdb.Ping(ctx).Err() }) &&
			yield("subscribe", func(ctx context.Context) error {
				return subscribed(ctx, rdb, channel)
			})
	}
}

// known returns the error, or nil if the error only means that a script is not known.
func known(err error) error {
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return nil
	}
	return err
}

// subscribed subscribes to a channel and ends the subscription at once.
func subscribed(ctx context.Context, rdb redis.UniversalClient, channel string) error {
	ps := rdb.Subscribe(ctx, channel)
	defer ps.Close()
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()
	_, err := ps.Receive(ctx)
	if ctx.Err() != nil { // the end of ctx has closed it
		return fmt.Errorf("no answer: %w", ctx.Err())
	}
	return err
}
