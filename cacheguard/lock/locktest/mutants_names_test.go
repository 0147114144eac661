package locktest_test

import (
	"context"
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// folds is a mutant that sends another name to the system.
func folds(what string, fold func(name string) string) mutant {
	return mutant{
		name: "names: " + what, caught: []string{"names: any bytes"},
		mutate: func(s *seat) { s.inner.flaws.name = fold },
	}
}

var nameMutants = []mutant{
	folds("case", strings.ToLower),
	folds("space at the ends", strings.TrimSpace),
	folds("one blank at the end", func(name string) string {
		return strings.TrimSuffix(name, " ")
	}),
	folds("path", func(name string) string { return path.Clean("/" + name) }),
	folds("path, without a leading slash", func(name string) string {
		return strings.TrimPrefix(name, "/")
	}),
	folds("escaped without escaping the escape", func(name string) string {
		return strings.ReplaceAll(name, "/", "%2F")
	}),
	folds("unescaped", func(name string) string {
		if plain, err := url.PathUnescape(name); err == nil {
			return plain
		}
		return name
	}),
	folds("a string in C", func(name string) string {
		before, _, _ := strings.Cut(name, "\x00")
		return before
	}),
	folds("only UTF-8", func(name string) string { return strings.ToValidUTF8(name, "\ufffd") }),
	folds("JSON", func(name string) string { b, _ := json.Marshal(name); return string(b) }),
	folds("a hash tag", func(name string) string {
		if _, tag, ok := strings.Cut(name, "{"); ok {
			if tag, _, ok := strings.Cut(tag, "}"); ok && tag != "" {
				return tag
			}
		}
		return name
	}),
	folds("cut to 255 bytes", func(name string) string { return name[:min(len(name), 255)] }),
	folds("cut to 511 bytes", func(name string) string { return name[:min(len(name), 511)] }),
	folds("two names of its own", func(name string) string {
		return strings.TrimSuffix(strings.TrimSuffix(name, ":queue"), ":token")
	}),
	{
		name:   "the lock has another name",
		caught: []string{"names: any bytes", "state: while held and after Unlock"},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			b.name = func() string { return "lock:" + b.Lock.Name() }
		}),
	},
	{
		name:   "any name will do",
		caught: []string{"names: too short and too long"},
		mutate: func(s *seat) {
			named := func(name string) string {
				return ("x" + name)[:min(1+len(name), lock.MaxName)]
			}
			s.locker.lock = func(ctx context.Context, name string) (lock.Lock, error) {
				return s.inner.Lock(ctx, named(name))
			}
		},
	},
	{
		name: "all names are one",
		caught: []string{
			"names: any bytes", "names: none waits for another",
			"names: waiters leave others alone",
		},
		mutate: func(s *seat) { s.inner.flaws.name = func(string) string { return "the lock" } },
	},
}
