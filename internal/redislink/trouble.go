package redislink

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Trouble is an error of a step, with its server and its cause in common words.
type Trouble struct {
	Server string // host:port, if it is known
	Cause  string
	Err    error
	User   string // the Redis user, if the server refused the user and the name is known
}

var whereInScript = regexp.MustCompile(` script: [0-9a-f]{40}, on @user_script:\s?\d+\.?`)

func (t *Trouble) Error() string {
	as := ""
	if t.User != "" {
		as = fmt.Sprintf(" as user %q", t.User)
	}
	text := whereInScript.ReplaceAllString(t.Err.Error(), "")
	return fmt.Sprintf("%s: %s%s (%s)", t.Server, t.Cause, as, text)
}

// answerOf returns the server's full answer. [Trouble.Error] leaves out which line of a script has
// failed.
func answerOf(err error) string {
	if t := (*Trouble)(nil); errors.As(err, &t) {
		return t.Err.Error()
	}
	return err.Error()
}

// RedisUser returns the user that a log line names.
func (t *Trouble) RedisUser() string { return t.User }

// Unwrap returns the error of the step.
func (t *Trouble) Unwrap() error { return t.Err }

// Where returns the server and the cause, which a log line has besides the error.
func (t *Trouble) Where() (server, cause string) { return t.Server, t.Cause }

// Told turns a step's error into a Trouble, unless it is one already. If the server hasn't answered
// and a dial has failed or takes long, the dial is the cause, because the step's error only reports
// that its time is over.
func (l *Link) Told(err error) error {
	var already *Trouble
	if err == nil || errors.As(err, &already) {
		return err
	}
	t := l.told(err)
	if TurnsAway(t) && t.Cause != protectedMode {
		t.User = l.User()
	}
	return t
}

func (l *Link) told(err error) *Trouble {
	if !NoAnswer(err) {
		return &Trouble{Server: l.Server(), Cause: causeOfAnswer(err), Err: err}
	}
	failed, takes, made := l.dials.last()
	refused := l.dials.refusal()
	switch {
	case errors.Is(err, context.Canceled):
		return &Trouble{Server: l.Server(), Cause: "given up by who asked", Err: err}
	case refused != nil && failed.err == nil &&
		(isTimeout(err) || causeOfBreak(err) == closedByOther):
		return &Trouble{
			Server: l.Server(), Cause: causeOfAnswer(refused), Err: joined(refused, err),
		}
	case failed.err != nil:
		return &Trouble{
			Server: l.nameOf(failed.addr), Cause: "can't be reached: " + causeOfDial(failed.err),
			Err: joined(failed.err, err),
		}
	case isDial(err): // of a client whose dials are not recorded
		return &Trouble{
			Server: l.Server(), Cause: "can't be reached: " + causeOfDial(err), Err: err,
		}
	case errors.Is(err, ErrExhausted):
		return &Trouble{Server: l.Server(), Cause: "no connection is free", Err: err}
	case !isTimeout(err) && !errors.Is(err, errSilent):
		return &Trouble{Server: l.Server(), Cause: causeOfBreak(err), Err: err}
	case takes && !onConnection(err):
		return &Trouble{
			Server: l.Server(), Cause: "can't be reached: no answer to a dial yet", Err: err,
		}
	case made || onConnection(err):
		return &Trouble{Server: l.Server(), Cause: "connected, and no answer in time", Err: err}
	}
	return &Trouble{Server: l.Server(), Cause: "no answer in time", Err: err}
}

// onConnection reports whether an error comes from a connection that was made. So it is not about
// dials, even if some take long.
func onConnection(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "read" || op.Op == "write")
}

// joined wraps both errors and has the text of dial, because err only tells how the step noticed
// the failure. If the dial got an answer from a Sentinel, only err is wrapped, because the step has
// got no answer.
func joined(dial, err error) error {
	switch {
	case errors.Is(err, dial):
		return err
	case !NoAnswer(dial):
		return because{dial.Error(), []error{err}}
	}
	return because{dial.Error(), []error{dial, err}}
}

// because wraps several errors, and has the text of one of them.
type because struct {
	says string
	all  []error
}

func (b because) Error() string   { return b.says }
func (b because) Unwrap() []error { return b.all }

// failover is the address of a client of Sentinels in go-redis.
const failover = "FailoverClient"

// Server returns the server that steps go to: host:port, or the nodes that a cluster client knows
// from the start.
func (l *Link) Server() string {
	switch c := l.rdb.(type) {
	case *redis.Client:
		return l.nameOf(c.Options().Addr)
	case *redis.ClusterClient:
		return "the cluster at " + strings.Join(c.Options().Addrs, ", ")
	}
	return "Redis"
}

// User returns the name of the Redis user, or an empty string if only the user's credentials
// provider knows it.
func (l *Link) User() string {
	switch c := l.rdb.(type) {
	case *redis.Client:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil &&
			o.StreamingCredentialsProvider == nil {
			return cmp.Or(o.Username, "default")
		}
	case *redis.ClusterClient:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil &&
			o.StreamingCredentialsProvider == nil {
			return cmp.Or(o.Username, "default")
		}
	}
	return ""
}

func (l *Link) nameOf(addr string) string {
	if addr == failover {
		return "the master that the Sentinels name"
	}
	return addr
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// causeOfDial returns why there is no connection.
func causeOfDial(err error) string {
	var dns *net.DNSError
	var alert tls.AlertError
	var header tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var name x509.HostnameError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "DNS doesn't know the host name"
	case errors.As(err, &dns):
		return "DNS has no answer for the host name"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to it"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "too many files are open here"
	case errors.As(err, &header):
		return "it doesn't speak TLS"
	case strings.Contains(err.Error(), "all sentinels"):
		// go-redis' own words, which have the reasons as text.
		return "no Sentinel names it"
	case errors.As(err, &alert), errors.As(err, &certificate), errors.As(err, &name),
		strings.Contains(err.Error(), "tls: "):
		return "TLS failed"
	case isTimeout(err):
		return "no answer to a dial in time"
	}
	return causeOfBreak(err)
}

const closedByOther = "the connection was closed by the other side"

// causeOfBreak returns how a connection has ended.
func causeOfBreak(err error) string {
	switch {
	case errors.Is(err, redis.ErrClosed), errors.Is(err, net.ErrClosed):
		return "the client is closed"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return closedByOther
	case strings.HasPrefix(err.Error(), "redis: can't parse"),
		strings.HasPrefix(err.Error(), "redis: invalid reply"):
		return "what answers is no Redis"
	}
	return "no connection"
}

// The causes when a server refuses a connection, or accepts it but refuses to work with the client.
const (
	noPassword     = "authentication failed: no password was given"
	wrongPassword  = "authentication failed"
	lacksRight     = "the Redis user lacks a right"
	protectedMode  = "it is in protected mode: it takes connections from its own host only"
	tooManyClients = "it has too many clients (maxclients)"
)

// TurnsAway reports whether an error means that the server has answered and refuses the client or
// its user. Then the server is alive.
func TurnsAway(err error) bool {
	switch cause(err) {
	case noPassword, wrongPassword, lacksRight, protectedMode:
		return true
	}
	return false
}

// NoPassword reports whether an error means that the server requires a password and got none.
func NoPassword(err error) bool { return cause(err) == noPassword }

// Crowded reports whether an error means that the server accepts no more connections. In this case
// go-redis keeps trying until the step's time is over.
func Crowded(err error) bool { return cause(err) == tooManyClients }

func cause(err error) string {
	var told *Trouble
	switch {
	case errors.As(err, &told):
		return told.Cause
	case err != nil && !NoAnswer(err):
		return causeOfAnswer(err)
	}
	return ""
}

// answers are the causes that a server names, by words anywhere in its error, because the error of
// a script begins with other words.
var answers = []struct {
	says  *regexp.Regexp
	cause string
}{
	{regexp.MustCompile(`NOAUTH|unauthenticated (?:multi)?bulk`), noPassword},
	{
		regexp.MustCompile(`WRONGPASS|invalid password|without any password|AUTH failed`),
		wrongPassword,
	},
	{refusal, lacksRight},
	{regexp.MustCompile(`\bDENIED\b`), protectedMode},
	{regexp.MustCompile(`\bOOM\b`), "its memory is full (maxmemory)"},
	{regexp.MustCompile(`READONLY`), "it is read-only: a replica"},
	{regexp.MustCompile(`NOREPLICAS`), "too few replicas are connected to it"},
	{regexp.MustCompile(`MISCONF`), "it can't save to disk"},
	{regexp.MustCompile(`\bBUSY\b`), "it is busy with a script"},
	{regexp.MustCompile(`\bLOADING\b`), "it is loading its data"},
	{regexp.MustCompile(`MASTERDOWN|CLUSTERDOWN`), "a part of the cluster is down"},
	{regexp.MustCompile(`\b(?:MOVED|ASK) \d|CROSSSLOT`), "it is a node of a cluster"},
	{regexp.MustCompile(`max number of clients`), tooManyClients},
	{regexp.MustCompile(`WRONGTYPE`), "a key holds what others have written"},
	{
		regexp.MustCompile(`unknown (?:command|subcommand)|Unknown Redis command`),
		"it lacks a command: too old, renamed, or no Redis",
	},
}

// causeOfAnswer returns the cause according to a server's error.
func causeOfAnswer(err error) string {
	text := err.Error()
	for _, a := range answers {
		if a.says.MatchString(text) {
			return a.cause
		}
	}
	return "it refuses the step"
}
