package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// server has the address of Redis and the way to connect to it.
type server struct {
	address     string
	cluster     bool
	sentinel    string
	user        string
	passwordEnv string
	db          int
	tls         bool
	cert, key   string

	addrs []string // without user and password
}

func (s *server) define(flags *flag.FlagSet) {
	flags.StringVar(&s.address, "redis", "",
		"host:port, several with commas between for -cluster and -sentinel, or a URL (default $REDIS_URL)")
	flags.BoolVar(&s.cluster, "cluster", false, "-redis names nodes of a Redis Cluster")
	flags.StringVar(&s.sentinel, "sentinel", "",
		"-redis names Sentinels, which know the master by this name")
	flags.StringVar(&s.user, "user", "", "name of the Redis user")
	flags.StringVar(&s.passwordEnv, "password-env", "REDIS_PASSWORD",
		"the environment variable that has the password")
	flags.IntVar(&s.db, "db", 0, "number of the database")
	flags.BoolVar(&s.tls, "tls", false, "speak TLS")
	flags.StringVar(&s.cert, "cert", "", "with -tls: file with the client's certificate")
	flags.StringVar(&s.key, "key", "", "with -tls: file with the key of -cert")
}

// client makes a client. If the flags are wrong, it returns an error. It doesn't dial.
func (s *server) client(
	env func(string) string, timeout time.Duration,
) (redis.UniversalClient, error) {
	if s.address == "" {
		s.address = env("REDIS_URL")
	}
	switch {
	case s.address == "":
		return nil,
			errors.New("no address of Redis: set -redis host:port, or REDIS_URL in the environment")
	case s.cluster && s.sentinel != "":
		return nil, errors.New("-cluster and -sentinel exclude each other")
	case s.cluster && s.db != 0:
		return nil, errors.New("a cluster has no databases: -db is for a single server")
	}
	opts, err := s.options()
	if err != nil {
		return nil, err
	}
	if password := env(s.passwordEnv); password != "" {
		opts.Password = password
	}
	s.addrs = opts.Addrs
	opts.ContextTimeoutEnabled = true
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = timeout, timeout, timeout
	// The store tries again itself, and the first error is the most useful.
	opts.DialerRetries, opts.MaxRetries = 1, -1
	opts.MasterName = s.sentinel
	opts.IsClusterMode = s.cluster
	return redis.NewUniversalClient(opts), nil
}

// options returns the client's options from the URL and the flags. A flag overrides the URL.
func (s *server) options() (*redis.UniversalOptions, error) {
	opts := &redis.UniversalOptions{}
	if strings.Contains(s.address, "://") {
		u, err := redis.ParseURL(s.address)
		if err != nil {
			// The URL may have the password.
			return nil,
				errors.New("-redis is no URL that go-redis knows, such as rediss://user@host:6379/0")
		}
		opts.Addrs, opts.Username, opts.Password, opts.DB, opts.TLSConfig = []string{u.Addr},
			u.Username, u.Password, u.DB, u.TLSConfig
	} else {
		for _, addr := range strings.Split(s.address, ",") {
			if _, _, err := net.SplitHostPort(addr); err != nil {
				return nil, fmt.Errorf("-redis %q: want host:port: %w", addr, err)
			}
			opts.Addrs = append(opts.Addrs, addr)
		}
		if len(opts.Addrs) > 1 && !s.cluster && s.sentinel == "" {
			return nil,
				errors.New("-redis has several addresses: say -cluster, or -sentinel with the name of the master")
		}
	}
	if s.user != "" {
		opts.Username = s.user
	}
	if s.db != 0 {
		opts.DB = s.db
	}
	return opts, s.secure(opts)
}

func (s *server) secure(opts *redis.UniversalOptions) error {
	if s.tls && opts.TLSConfig == nil {
		opts.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if s.cert == "" && s.key == "" {
		return nil
	}
	if opts.TLSConfig == nil {
		return errors.New("-cert and -key are for -tls")
	}
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return fmt.Errorf("-cert and -key: %w", err)
	}
	opts.TLSConfig.Certificates = []tls.Certificate{pair}
	return nil
}

// explained adds to an error the flag that may help.
func (s *server) explained(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "MOVED ") && !s.cluster:
		return fmt.Errorf("%w\nthis is a node of a cluster: add -cluster", err)
	case strings.Contains(text, "this is a Sentinel") && s.sentinel == "":
		return fmt.Errorf("%w\nadd -sentinel with the name of the master", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf(
			"%w\n%s doesn't answer: is it the right port, and does it speak TLS or not, as -tls says?",
			err, strings.Join(s.addrs, ", "))
	case strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS"):
		return fmt.Errorf(
			"%w\n-user gives the user, the environment variable %s gives the password", err,
			s.passwordEnv)
	}
	return err
}
