package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// options are the command's flags.
type options struct {
	host        string // of -addr
	port        int    // of -addr; 0: a free port for each replica
	hosts       []string
	replicas    int
	db          string // empty: a database in memory
	redis       string // empty: an embedded Redis
	zookeeper   string // empty: no ZooKeeper
	originDelay time.Duration
	ttl         time.Duration
	stage       string
	lockTTL     time.Duration // the lock time of stages other than ownStage
	audit       float64       // the number of answers a second that are audited
	logLevel    slog.Level
}

// ownStage is the stage that uses cacheguard. It is the only stage that keeps its promises.
const ownStage = "cacheguard"

const maxReplicas = 64

// parseOptions reads the flags. If help is requested, it prints the help and returns flag.ErrHelp.
// Any other error names all wrong options.
func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("catalog", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned and printed once, by the caller
	addr := flags.String("addr", "localhost:8080",
		"`host:port` of the first replica; the others take the ports after it; port 0 means a free port for each")
	flags.Func("hosts",
		"`names` under which browsers may ask, beside localhost and -addr's, with commas between them (default: none)",
		func(names string) error {
			o.hosts = strings.Split(names, ",")
			return nil
		})
	flags.IntVar(&o.replicas, "replicas", 1,
		"`number` of replicas, each with its own cache and its own connections to Redis")
	flags.StringVar(&o.db, "db", "",
		"`file` of an SQLite database, or the URL of a PostgreSQL (postgres://user:password@host/name); without categories it is filled with the example's (default: one in memory)")
	flags.StringVar(&o.redis, "redis", "",
		"`host:port` of a Redis server (default: an embedded one)")
	flags.StringVar(&o.zookeeper, "zookeeper", "",
		"`host:port` of a ZooKeeper for the stages of the lab that need one (default: none)")
	flags.DurationVar(&o.originDelay, "origin-delay", 200*time.Millisecond,
		"how long each query takes")
	flags.DurationVar(&o.ttl, "ttl", time.Minute, "how long what is cached is fresh")
	flags.StringVar(&o.stage, "stage", ownStage,
		"`name` of the stage that protects the category map: "+stageNames())
	flags.DurationVar(&o.lockTTL, "lock-ttl", 30*time.Second,
		"how long a lock of the other stages lasts, where it has an end")
	flags.Float64Var(&o.audit, "audit", 0,
		"how many answers a second each replica compares with the database, at most, for the tree and for categories; what is wrong is logged")
	flags.TextVar(&o.logLevel, "log", slog.LevelWarn,
		"the least `level` that is logged: debug, info (each load and rename), warn or error")

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(help,
			"catalog serves a shop's category map from a SQL database through cacheguard.\n\nFlags:")
		flags.SetOutput(help)
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return o, err
	}
	var errExtra error
	if flags.NArg() > 0 {
		errExtra = fmt.Errorf("unexpected argument%s: there are only flags", said(flags.Arg(0)))
	}
	var errAddr error
	o.host, o.port, errAddr = splitAddr("-addr", *addr)
	return o, errors.Join(errExtra, errAddr, o.validate())
}

func (o options) validate() error {
	var errs []error
	if o.replicas < 1 || o.replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("-replicas %d: want 1 to %d", o.replicas, maxReplicas))
	} else if last := o.port + o.replicas - 1; o.port > 0 && last > 65535 {
		errs = append(errs,
			fmt.Errorf("-addr: %d replicas from port %d on would need port %d, the last one is 65535",
				o.replicas, o.port, last))
	}
	errs = append(errs, checkServer("-redis", o.redis), checkServer("-zookeeper", o.zookeeper))
	// err may contain a part of the password.
	if _, err := url.Parse(o.db); isPostgres(o.db) && err != nil {
		errs = append(errs,
			errors.New("-db: the URL can't be read: is every sign of the password that means something in a URL written as %XX?"))
	} else if !isPostgres(o.db) && (strings.Contains(o.db, "://") || named.MatchString(o.db)) {
		errs = append(errs, errors.New("-db: want a file, or a URL that begins with postgres://"))
	}
	for _, name := range o.hosts {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			errs = append(errs, fmt.Errorf("-hosts %q: want names without a port", name))
		}
	}
	if stages := stage.All(); !slices.ContainsFunc(stages, func(s stage.Stage) bool {
		return s.Name == o.stage
	}) {
		errs = append(errs, fmt.Errorf("-stage %q: want one of %s", o.stage, stageNames()))
	} else if o.zookeeper == "" && slices.ContainsFunc(stages, func(s stage.Stage) bool {
		return s.Name == o.stage && s.Needs == stage.NeedsZooKeeper
	}) {
		errs = append(errs, fmt.Errorf("-stage %s: this needs -zookeeper", o.stage))
	}
	if o.lockTTL < time.Second {
		errs = append(errs, fmt.Errorf("-lock-ttl %v: want a second at least", o.lockTTL))
	}
	if !(o.audit >= 0 && o.audit <= 1000) { // also true for NaN
		errs = append(errs, fmt.Errorf("-audit %v: want a number from 0 to 1000", o.audit))
	}
	if o.originDelay < 0 {
		errs = append(errs, fmt.Errorf("-origin-delay %v: must not be negative", o.originDelay))
	}
	if o.ttl <= 0 {
		errs = append(errs, fmt.Errorf("-ttl %v: must be more than zero", o.ttl))
	}
	return errors.Join(errs...)
}

func stageNames() string {
	var names []string
	for _, s := range stage.All() {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// listenAddr returns the address of the replica with this index, from 0.
func (o options) listenAddr(replica int) string {
	port := o.port
	if port != 0 {
		port += replica
	}
	return net.JoinHostPort(o.host, strconv.Itoa(port))
}

// checkServer returns an error if the address of a server is invalid. An empty address is valid and
// means that there is no server.
func checkServer(name, addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := splitAddr(name, addr)
	if err == nil && port == 0 {
		err = fmt.Errorf("%s%s: no server has port 0", name, said(addr))
	}
	return err
}

func splitAddr(name, addr string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%s%s: want host:port", name, said(addr))
	}
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return "", 0,
			fmt.Errorf("%s%s: the port must be a number from 0 to 65535", name, said(addr))
	}
	return host, int(number), nil
}

// said returns an argument for a message, unless the argument may contain a secret: a URL, a user
// before an address, an assignment.
func said(arg string) string {
	if strings.ContainsAny(arg, "@=") || strings.Contains(arg, "://") {
		return ""
	}
	return fmt.Sprintf(" %q", arg)
}
