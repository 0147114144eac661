// Command inspect shows the entries in Redis under a key of a cache, and their meaning for callers:
// which callers can get the value and why, when its tags were invalidated, which load is under way
// or how the last load failed, and which processes wait.
//
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 product 42
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 -scan product
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 -diagnose
//
// The first argument is Options.Name of the cache, the second is the key as callers pass it. With
// -value the command shows the value, too: JSON, MessagePack and text in readable form, also if
// compresscodec has compressed them, and anything else in hexadecimal. With -scan it counts the
// entries of a whole cache: how many values there are, how large and how old they are, how long
// they stay, and which callers can get them. With -find it counts the same and also lists the keys
// whose hash begins with the digits that a log or the status page shows. With -json it prints one
// object, described at redisstore.Inspection, Scanned and Diagnosis. With -json and -value the
// member body of this object is the value: the same JSON, indented, if it is JSON; converted to
// JSON if it is MessagePack; a string if it is text. Any other value, and the beginning of a value
// that is longer than -bytes, is in base64 in the member bytes.
//
// Without -diagnose the command only reads. In the repository, docs/redis.md has, under
// "Inspecting", an ACL rule for a Redis user that can't do more. With -diagnose the command tries
// everything that a store does in Redis, including writes. It reports which steps work, which fail
// and why, and what this means for callers. To test the service's own access, run the command on
// the service's host and as the service's Redis user. The documentation of Store.Diagnose says what
// the diagnosis writes.
//
// # Connecting
//
// -redis takes host:port, several of them separated by commas for -cluster and -sentinel, or a URL
// in a form that go-redis knows (redis://, rediss://, unix://). Without -redis the environment
// variable REDIS_URL is used. The password is taken from the environment variable that
// -password-env names (REDIS_PASSWORD by default), or else from the URL. There is no flag for it,
// because other users of a machine can see a command's arguments. With -tls the server's
// certificate is verified with the system's certificates, or, except on macOS and Windows, with the
// certificates in the file that SSL_CERT_FILE names. -cert and -key give the client's certificate.
//
// The exit code is 0 if Redis could be asked, even if nothing is stored. It is 1 if Redis couldn't
// be asked, if the prefix or the cache's name isn't allowed, if a scan was interrupted, or if
// -diagnose finds a step that doesn't work. It is 2 for arguments that can't be understood.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const usage = `usage: inspect [flags] CACHE KEY          show what Redis has for a key
       inspect [flags] -scan CACHE        count what Redis has for a cache
       inspect [flags] -find HASH CACHE   find the keys in Redis that have this hash
       inspect [flags] -diagnose          try which steps of a cache work in Redis
`

// options are the command's flags and the arguments after them.
type options struct {
	server        server
	prefix        string
	timeout       time.Duration
	version       int
	value         bool
	bytes         int
	json, scan    bool
	diagnose      bool
	find          string
	limit, count  int
	pause         time.Duration
	cache, wanted string
}

func run(
	ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer,
) int {
	redis.SetLogger(silent{}) // the command's error already says what went wrong
	opts, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var rdb redis.UniversalClient
	if err == nil {
		rdb, err = opts.server.client(env, opts.timeout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "inspect: %v\n", err)
		return 2
	}
	defer rdb.Close()
	if err := opts.inspect(ctx, rdb, stdout); err != nil {
		fmt.Fprintf(stderr, "inspect: %v\n", opts.server.explained(err))
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (opts options, err error) {
	flags := flag.NewFlagSet("inspect", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		flags.PrintDefaults()
	}
	opts.server.define(flags)
	flags.StringVar(&opts.prefix, "prefix", "", "Options.Prefix of the store (default \"cg\")")
	flags.DurationVar(&opts.timeout, "timeout", 5*time.Second, "longest time for each step in Redis")
	flags.BoolVar(&opts.value, "value", false, "show the value, too")
	flags.IntVar(&opts.bytes, "bytes", 16<<10,
		"most bytes of the value to show; in hexadecimal a sixteenth of it")
	flags.BoolVar(&opts.json, "json", false, "print JSON")
	flags.IntVar(&opts.version, "version", 0,
		"Options.Version of the cache. Without it, values of an odd version are shown, too")
	flags.BoolVar(&opts.scan, "scan", false, "count what Redis has for a cache")
	flags.StringVar(&opts.find, "find", "",
		"like -scan, and list the keys whose SHA-256 begins with these hexadecimal digits")
	flags.BoolVar(&opts.diagnose, "diagnose", false,
		"try every step of a store, with writes to keys of its own")
	flags.IntVar(&opts.limit, "limit", 100_000, "with -scan: the most values to look at, -1: all")
	flags.IntVar(&opts.count, "count", 500, "with -scan: how many names Redis looks at in a step")
	flags.DurationVar(&opts.pause, "pause", 10*time.Millisecond, "with -scan: the pause between two steps")
	if err := flags.Parse(args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			err = errors.New("see -help") // the flag package has printed the rest
		}
		return opts, err
	}
	opts.scan = opts.scan || opts.find != ""
	want := 2
	switch {
	case opts.scan && opts.diagnose:
		return opts, errors.New("-diagnose goes without -scan and -find")
	case opts.scan:
		want = 1
	case opts.diagnose:
		want = 0
	}
	if opts.find != "" && flags.NArg() == 0 {
		return opts, errors.New("-find needs the name of the cache behind it: -find HASH CACHE")
	}
	if flags.NArg() != want {
		return opts,
			fmt.Errorf("%d arguments after the flags, want %d\n%s", flags.NArg(), want,
				strings.TrimSpace(usage))
	}
	opts.cache, opts.wanted = flags.Arg(0), flags.Arg(1)
	switch {
	case opts.timeout < 2*time.Millisecond:
		return opts, fmt.Errorf("-timeout %v is too short", opts.timeout)
	case opts.bytes < 0:
		return opts, fmt.Errorf("-bytes %d is below zero", opts.bytes)
	case opts.limit == 0 || opts.count < 1:
		return opts, errors.New("-limit 0 or -count below 1 looks at nothing")
	case opts.version < 0:
		return opts, fmt.Errorf("-version %d is below zero", opts.version)
	case strings.Trim(opts.find, "0123456789abcdefABCDEF") != "" || len(opts.find) > 2*sha256.Size:
		return opts,
			fmt.Errorf("-find %q is not the beginning of a SHA-256 in hexadecimal", opts.find)
	case opts.scan && opts.value:
		return opts, errors.New("-scan shows no values")
	}
	if opts.pause <= 0 {
		opts.pause = -1
	}
	return opts, nil
}

// inspect asks Redis and prints the result.
func (o options) inspect(ctx context.Context, rdb redis.UniversalClient, stdout io.Writer) error {
	store, err := redisstore.New(rdb, redisstore.Options{
		Prefix: o.prefix, OpTimeout: o.timeout, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer store.Close()
	if o.diagnose {
		found := store.Diagnose(ctx)
		if found.Err() != nil {
			err = errors.New("not everything works")
		}
		return errors.Join(err, o.print(stdout, found, found.String()))
	}
	if o.scan {
		found, err := store.Scan(ctx, o.cache,
			redisstore.ScanOptions{Limit: o.limit, Count: o.count, Pause: o.pause, Hash: o.find})
		if err != nil && found.Values == 0 {
			return err
		}
		// Also prints the counts from before an interruption.
		return errors.Join(err, o.print(stdout, found, found.String()))
	}
	found, err := store.InspectVersion(ctx, o.cache, o.wanted, o.version)
	if err != nil {
		return err
	}
	// Perhaps the cache has an odd Options.Version, whose values have other names.
	if nothing(found) && o.version == 0 {
		if odd, err := store.InspectVersion(ctx, o.cache, o.wanted, 1); err == nil &&
			!nothing(odd) {
			found = odd
		}
	}
	text := found.String()
	if nothing(found) && nothingOf(ctx, store, o.cache) {
		text += fmt.Sprintf(
			"nothing at all is stored of a cache %q: is it Options.Name, and is the prefix right?\n",
			o.cache)
	}
	if !o.value || found.Value == nil {
		return o.print(stdout, found, text)
	}
	value := show(found.Value, o.bytes)
	return o.print(stdout, struct {
		redisstore.Inspection
		shown
	}{found, value}, text+"\n"+value.text)
}

// nothing reports whether neither a value nor a lease is stored under a key.
func nothing(i redisstore.Inspection) bool {
	return i.State == redisstore.StateAbsent && i.Lease == nil
}

// nothingOf reports whether it is certain that Redis has no entry of a cache. It gives up after a
// short time, because a person waits.
func nothingOf(ctx context.Context, store *redisstore.Store, cache string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	all, err := store.Scan(ctx, cache, redisstore.ScanOptions{Limit: 1, Pause: -1})
	return err == nil && all.Whole && all.Values+all.Leases+all.Records+all.Newer == 0
}

func (o options) print(stdout io.Writer, v any, text string) error {
	if !o.json {
		_, err := io.WriteString(stdout, text)
		return err
	}
	out := json.NewEncoder(stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

// silent drops the log of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
