package redisstore

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// oldest is the first version of Redis that has all commands that are needed. Servers with other
// names start their version numbers above it.
const oldest = "6.2"

// Diagnose tries each step of the store, on names of its own. The result says which steps work,
// which fail and why, and what this means for callers. Diagnose takes some dozens of trips, or some
// seconds if the server doesn't answer. When ctx is done, it tries nothing more. The data that it
// writes has a TTL of a minute or is removed at the end, also after ctx is done. If the server
// doesn't answer then, the removal takes up to three times OpTimeout. Call Diagnose at the start of
// a program, from a command, or when something looks wrong. Caches don't need it.
func (s *Store) Diagnose(ctx context.Context) Diagnosis {
	d := &diagnosing{ctx: ctx, s: s, cache: "diagnosis " + rand.Text()}
	d.Addr, d.User, d.Prefix = s.link.Server(), s.link.User(), s.opts.Prefix
	d.try("answers", "every call loads for itself, and nothing is shared", d.answer)
	answers := &d.Parts[0]
	switch {
	case redislink.NoPassword(answers.Err):
		answers.Means =
			"nothing more is known: no password was given here, but the service may have one"
		return d.Diagnosis
	case redislink.Refused(answers.Err): // the server answers, and the user lacks +ping
		answers.Means = "nothing notices that the connection for messages is dead"
	case answers.Err != nil:
		return d.Diagnosis
	}
	d.try("is a server for this client", "every call loads for itself, and changes may fail",
		d.suit)
	if err := d.Parts[1].Err; err != nil && !redislink.Refused(err) {
		return d.Diagnosis
	}
	d.try("has all rights", "steps that need a missing right don't work", d.rights)
	d.try("tells the time", "every call loads for itself, and nothing is shared", d.tellTime)
	if ctx.Err() == nil { // the parts from here on write data that has no TTL
		defer d.tidy()
	}
	d.try("reads values", "every call loads for itself, and nothing is shared", d.read)
	d.try("gives leases", "each process loads for itself, and nothing is stored", d.lease)
	d.try("keeps leases",
		"a load that takes longer than LeaseTTL is not stored, and another begins beside it",
		d.renew)
	d.try("ends loads that fail",
		"callers that wait for a load that fails wait until its lease is over", d.conclude)
	d.try("stores values", "each process loads for itself, and nothing is stored", d.fill)
	d.try("changes values", "calls that change values fail, and old values are served until their TTL is over",
		d.change)
	d.try("changes values by tag",
		"InvalidateTags and InvalidateAll fail, and values with tags are loaded each time", d.tags)
	d.try("brings messages",
		"calls that wait for another process poll Redis, and local tiers are not used",
		d.message)
	d.try("keeps budgets",
		"a limiter of NewFleetLimiter lets each process load as if it were alone", d.permits)
	d.Mend = d.mend()
	return d.Diagnosis
}

var lackedRights = regexp.MustCompile(`the Redis user lacks ((?:[+~&]\S+?(?: |:(?: |$)))+)`)

// mend returns the command that gives the user the missing rights.
func (d *diagnosing) mend() string {
	var all []string
	for _, p := range d.Parts {
		if p.Err == nil {
			continue
		}
		for _, found := range lackedRights.FindAllStringSubmatch(p.Err.Error(), -1) {
			for right := range strings.FieldsSeq(found[1]) {
				right = strings.TrimSuffix(right, ":")
				if !slices.Contains(all, right) {
					all = append(all, right)
				}
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "ACL SETUSER " + cmp.Or(d.User, "USER") + " " + strings.Join(all, " ")
}

// diagnosing is a diagnosis under way.
type diagnosing struct {
	Diagnosis
	ctx   context.Context
	s     *Store
	cache string
	grant cacheguard.Grant
}

func (d *diagnosing) try(name, means string, do func() error) {
	err := d.ctx.Err()
	if err != nil {
		err = fmt.Errorf("not tried: %w", err)
	} else {
		err = do()
	}
	d.Parts = append(d.Parts, Part{Name: name, Means: means, Err: err})
}

// answer tries whether the server answers, and measures how fast.
func (d *diagnosing) answer() error {
	const pings = 5
	var err error
	for range pings {
		began := time.Now()
		if _, err = redislink.Once(d.ctx, d.s.link, ping); err == nil {
			d.Trip = min(time.Since(began), cmp.Or(d.Trip, time.Hour))
		}
	}
	if d.Trip > 0 {
		return nil
	}
	return d.s.explained(err)
}

// identity is the server's description of itself.
type identity struct {
	server, mode, role, eviction string
	used, most                   int64 // bytes of memory
}

// identify asks the server for its identity with HELLO, which every user may run, and with INFO for
// what HELLO doesn't say. If the server refuses both or doesn't answer, the identity is empty.
func (s *Store) identify(ctx context.Context) (found identity) {
	said, _ := redislink.Once(ctx, s.link, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (map[string]string, error) {
		return pairs(rdb.Do(ctx, "hello").Result())
	})
	info, _ := redislink.Once(ctx, s.link, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (map[string]string, error) {
		text, err := rdb.Info(ctx).Result()
		return fields(text), err
	})
	name := cmp.Or(info["server_name"], said["server"], "redis")
	if version := cmp.Or(info["valkey_version"], info["redis_version"],
		said["version"]); version != "" {
		found.server = name + " " + version
	}
	found.mode = cmp.Or(said["mode"], info["server_mode"], info["redis_mode"])
	found.role = strings.ReplaceAll(cmp.Or(said["role"], info["role"]), "slave", "replica")
	found.eviction = info["maxmemory_policy"]
	found.used, _ = strconv.ParseInt(info["used_memory"], 10, 64)
	found.most, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	return found
}

// suits returns the reason why the store can't work with this server through its client, or nil.
func (s *Store) suits(found identity) error {
	name, version, _ := strings.Cut(found.server, " ")
	switch {
	case found.mode == "sentinel":
		return errSentinel
	case found.mode == "cluster" && !s.link.IsCluster():
		return errNode
	case found.role == "replica" && !s.link.IsCluster():
		return errReplica
	case name == "redis" && older(version, oldest):
		return fmt.Errorf("%s is too old: %s or later is needed", found.server, oldest)
	}
	return nil
}

func (d *diagnosing) suit() error {
	found := d.s.identify(d.ctx)
	d.Server, d.Mode, d.Role, d.Eviction = found.server, found.mode, found.role, found.eviction
	d.UsedMemory, d.MaxMemory = found.used, found.most
	return d.s.suits(found)
}

// rights returns all rights that the user lacks as an error. It ignores other errors, because other
// parts of the diagnosis report them.
func (d *diagnosing) rights() error {
	rules := d.s.rules()
	if _, ok := d.s.link.Client().(*redis.ClusterClient); ok {
		return nil // the command may be for another node: the other parts report missing rights
	}
	err := rules.Try(d.ctx, d.s.link.Client(), d.s.names.value(d.key("value")),
		d.s.names.inbox("try"), d.s.commands(d.key("value"))...)
	if redislink.Refused(err) {
		return err
	}
	return nil
}

func (d *diagnosing) tellTime() error {
	if _, err := d.s.remeasure(d.ctx); err != nil {
		return err
	}
	d.Clock = time.Until(d.s.clock.now())
	return nil
}

func (d *diagnosing) key(name string) cacheguard.Key {
	return cacheguard.Key{Cache: d.cache, Key: name}
}

func (d *diagnosing) read() error {
	_, _, err := d.s.Get(d.ctx, d.key("value"), []string{"tag"})
	_, _, plain := d.s.Get(d.ctx, d.key("value"), nil)
	return cmp.Or(err, plain)
}

// diagnosisTTL is the TTL of the data of a diagnosis, except generations, which have no TTL.
const diagnosisTTL = time.Minute

func (d *diagnosing) lease() error {
	ans, err := d.s.Lease(d.ctx, d.key("value"),
		cacheguard.LeaseAsk{Token: randomID(), TTL: diagnosisTTL})
	if err == nil && ans.State != cacheguard.LeaseGranted {
		err = fmt.Errorf("a lease that nobody has was not granted: %+v", ans)
	}
	d.grant = ans.Grant
	return err
}

var errNoLease = errors.New("not tried, because no lease was granted")

func (d *diagnosing) renew() error {
	if d.grant == (cacheguard.Grant{}) {
		return errNoLease
	}
	held, err := d.s.Renew(d.ctx, d.key("value"), d.grant, diagnosisTTL)
	if err == nil && held != cacheguard.HoldingMine {
		err = errors.New("a lease was forgotten at once")
	}
	return err
}

func (d *diagnosing) conclude() error {
	token := randomID()
	ans, err := d.s.Lease(d.ctx, d.key("failed"),
		cacheguard.LeaseAsk{Token: token, TTL: diagnosisTTL})
	if err == nil {
		failed := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "tried"}
		err = d.s.Conclude(d.ctx, d.key("failed"), ans.Grant, failed, diagnosisTTL, diagnosisTTL)
	}
	return cmp.Or(err, d.s.Release(d.ctx, d.key("failed"), token))
}

func (d *diagnosing) fill() error {
	if d.grant == (cacheguard.Grant{}) {
		return errNoLease
	}
	frame := make([]byte, 80)
	ans, err := d.s.Fill(d.ctx, d.key("value"), d.grant, frame, diagnosisTTL)
	if err == nil && ans != cacheguard.FillStored {
		err = errors.New("a value was not stored, though its lease was held")
	}
	if err == nil {
		var got []byte
		if got, _, err = d.s.Get(d.ctx, d.key("value"), nil); err == nil &&
			!slices.Equal(got, frame) {
			err = errors.New("a value that was stored was not found")
		}
	}
	return err
}

func (d *diagnosing) change() error {
	keys := []cacheguard.Key{d.key("value")}
	said := func(what string, err error) error {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return err
	}
	_, claim := d.s.Claim(d.ctx, d.key("claimed"), randomID(), diagnosisTTL)
	return errors.Join(said("MarkStale", d.s.MarkStale(d.ctx, keys, 72, make([]byte, 8))),
		said("Invalidate", d.s.Invalidate(d.ctx, keys)), said("Set and Update", claim))
}

func (d *diagnosing) tags() error {
	_, err := d.s.InvalidateTags(d.ctx, d.cache, []string{"tag"})
	_, whole := d.s.InvalidateTags(d.ctx, d.cache, nil)
	_, read := d.s.Generations(d.ctx, d.cache, []string{"tag"})
	return cmp.Or(err, whole, read)
}

// message waits until the subscription works, and then for a message: for four times OpTimeout in
// all.
func (d *diagnosing) message() error {
	sub, err := d.s.subscribe()
	if err != nil {
		return err
	}
	const patience = 4 // times OpTimeout
	ctx, cancel := context.WithTimeout(d.ctx, patience*d.s.opts.OpTimeout)
	defer cancel()
	go func() { // if the subscription is refused, there is nothing to wait for
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !redislink.TurnsAway(d.s.explained(sub.Last())) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	if err := d.s.messages(ctx, sub); err != nil {
		return d.s.explained(cmp.Or(sub.Last(), err))
	}
	stands, heard := make(chan time.Time, 1), make(chan time.Time, 1)
	stop := d.s.Listen(d.cache, func(m cacheguard.Message) {
		var tell chan<- time.Time
		switch {
		case m.Kind == cacheguard.MessageRestored:
			tell = stands
		case m.Kind == cacheguard.MessageChanged && m.Key == "told":
			tell = heard
		}
		select {
		case tell <- time.Now():
		default:
		}
	})
	defer stop()
	began := time.Now()
	select {
	case <-stands:
	case <-ctx.Done():
		if err := d.s.explained(sub.Last()); redislink.TurnsAway(err) {
			return err
		}
		return fmt.Errorf("the server did not confirm a channel within %v: %w",
			time.Since(began).Round(time.Millisecond), ctx.Err())
	}
	began = time.Now()
	if err := d.s.Invalidate(ctx, []cacheguard.Key{d.key("told")}); err != nil {
		return err
	}
	select {
	case at := <-heard:
		d.Message = at.Sub(began)
		return nil
	case <-ctx.Done():
		return fmt.Errorf(
			"none came within %v, though the server confirmed the subscription; does a proxy stand between?",
			time.Since(began).Round(time.Millisecond))
	}
}

func (d *diagnosing) permits() error {
	token := randomID()
	taken, _, err := d.s.TakePermit(d.ctx, d.cache, token, 1, diagnosisTTL)
	if err == nil && !taken {
		err = errors.New("a permit that nobody has was not given")
	}
	return cmp.Or(err, d.s.ReturnPermit(d.ctx, d.cache, token))
}

// tidy removes the data that has no TTL, even if the caller's context has ended.
func (d *diagnosing) tidy() {
	ctx := context.WithoutCancel(d.ctx)
	for _, name := range []string{d.s.names.generations(d.cache), d.s.names.whole(d.cache)} {
		_, _ = call(ctx, d.s, name, func(
			ctx context.Context, rdb redis.UniversalClient,
		) (int64, error) {
			return rdb.Del(ctx, name).Result()
		})
	}
	_ = d.s.Invalidate(ctx, []cacheguard.Key{d.key("claimed"), d.key("failed"), d.key("told")})
}

func randomID() (id cacheguard.ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// pairs reads the reply to HELLO, in either version of the protocol.
func pairs(reply any, err error) (map[string]string, error) {
	said := make(map[string]string)
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			said[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			said[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	return said, err
}

// fields reads the reply to INFO.
func fields(text string) map[string]string {
	said := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			said[name] = value
		}
	}
	return said
}

// older reports whether one version is before another. A text that isn't a version is not older.
func older(version, than string) bool {
	for {
		a, restA, _ := strings.Cut(version, ".")
		b, restB, more := strings.Cut(than, ".")
		x, wrong := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		if wrong != nil || x != y || !more {
			return wrong == nil && x < y
		}
		version, than = restA, restB
	}
}
