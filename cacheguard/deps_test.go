package cacheguard_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/cacheguard/cacheguard"

// layers says which packages of this module a package may import: bench, examples → middleware →
// cacheguard ← stores, locks, observers. The line with the best pattern counts. The pattern "a" is
// package a itself, "a/*" is all packages one level below it, and "a/..." is a and all packages
// below it. Implementations (stores, locks, observers) don't import each other. Their lines have
// patterns, so that this also holds for new implementations.
var layers = map[string]string{
	"internal/...":         "internal/...",
	"internal/eventcount":  "cacheguard internal/...",
	"cacheguard":           "internal/...",
	"cacheguard/...":       "cacheguard internal/...",
	"cacheguard/lock/*":    "cacheguard cacheguard/lock internal/...",
	"cacheguard/outbox":    "cacheguard cacheguard/lock cacheguard/lock/sqllock internal/...",
	"cacheguard/lockstore": "cacheguard cacheguard/lock internal/...",
	"cacheguard/guardtest": "cacheguard cacheguard/memstore internal/...",
	// Codecs may be modules of their own, which can't import internal.
	"cacheguard/codectest": "cacheguard",
	"middleware/...":       "middleware/... cacheguard internal/...",
	"examples/...":         "examples/... middleware/... cacheguard/... internal/...",
	"bench/...":            "bench/... examples/... middleware/... cacheguard/... internal/...",
	"bench/peers":          "bench/internal/program bench/internal/contender/... cacheguard/... internal/...",

	"cacheguard/redisstore/inspect": "cacheguard/redisstore cacheguard/compresscodec cacheguard/msgpackcodec internal/...",
}

// inTests has the packages of this module that tests of any package may import in addition.
const inTests = "cacheguard/... internal/..."

// serversForTests are packages that start servers or help tests in other ways. Only tests, the
// benchmark, guardtest and these packages themselves may import them (serversForTestsIn). Users of
// this module get the parts that their tests need through guardtest.
const (
	serversForTests = "internal/childproc/... internal/faultproxy internal/redistest " +
		"internal/zktest internal/pgtest internal/browsertest internal/suitetest internal/logtest internal/waittest"
	serversForTestsIn = "bench/... cacheguard/guardtest " + serversForTests
)

// libraries says which packages may import which libraries of other modules. A library that is not
// in this table is a new dependency. It is a lasting cost for every user of the package, so think
// twice before you add it. Tests may import every library that the go.mod of their module has. If
// users of the module don't want a library, it stays out of go.mod, and the tests that need it are
// in internal/alltest.
var libraries = map[string]string{
	"golang.org/x/sync/...":                "cacheguard/... internal/... middleware/... examples/... bench/...",
	"github.com/maypok86/otter/v2/...":     "cacheguard internal/... bench/peers",
	"github.com/redis/go-redis/v9/...":     "cacheguard/redisstore/... cacheguard/lock/redislock cacheguard/lock/redlock internal/redislink internal/redistest examples/... bench/...",
	"github.com/google/uuid":               "cacheguard/redisstore cacheguard/lock/* internal/redislink middleware/... examples/... bench/...",
	"github.com/go-chi/chi/v5/...":         "middleware/... examples/... bench/...",
	"github.com/dunglas/httpsfv":           "middleware",
	"github.com/klauspost/compress/...":    "cacheguard/compresscodec middleware/... examples/... bench/...",
	"github.com/vmihailenco/msgpack/v5":    "cacheguard/msgpackcodec",
	"google.golang.org/protobuf/...":       "cacheguard/protocodec",
	"go.opentelemetry.io/...":              "cacheguard/otelobserver examples/... bench/...",
	"github.com/prometheus/...":            "cacheguard/promobserver examples/... bench/...",
	"github.com/go-zookeeper/zk":           "cacheguard/lock/zklock examples/... bench/...",
	"github.com/jackc/pgx/v5/...":          "examples/... bench/...",
	"modernc.org/sqlite/...":               "examples/... bench/...",
	"github.com/alicebob/miniredis/v2/...": "internal/redistest examples/... bench/...",
	"github.com/anishathalye/porcupine":    "cacheguard/lock/locktest",
	"github.com/chromedp/...":              "internal/browsertest",
	"golang.org/x/mod/...":                 "internal/release",

	"github.com/bsm/redislock":             "bench/peers",
	"github.com/dtm-labs/rockscache":       "bench/peers",
	"github.com/go-redis/cache/v9":         "bench/peers",
	"github.com/go-redsync/redsync/v4/...": "bench/peers",
	"github.com/redis/rueidis/...":         "bench/peers",
	"github.com/viccon/sturdyc":            "bench/peers",
	"github.com/zeromicro/go-zero/...":     "bench/peers",
}

// forTests are packages of the standard library that only tests may import. Packages whose names
// end in "test" may import them, too.
const forTests = "testing/... net/http/httptest"

func TestDependencies(t *testing.T) {
	packages := map[string]bool{}
	err := eachImport("..", func(file, from, to string) {
		packages[from] = true
		if why := forbidden(from, to, strings.HasSuffix(file, "_test.go")); why != "" {
			t.Errorf("%s imports %s: %s", file, to, why)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{
		"cacheguard", "cacheguard/memstore", "internal/frame", "bench/peers",
	} {
		if !packages[p] {
			t.Errorf("this test doesn't see package %s", p)
		}
	}
}

// TestDependencyRules tries the rules on packages that need not exist.
func TestDependencyRules(t *testing.T) {
	const fine, wrong, test = true, false, true
	for _, c := range []struct {
		from, to string
		test, ok bool
	}{
		{"cacheguard", "context", !test, fine},
		{"cacheguard", "net/http", !test, fine},
		{"cacheguard", "golang.org/x/sync/errgroup", !test, fine},
		{"cacheguard", "golang.org/x/synchronous", !test, wrong},
		{"cacheguard", module + "/internal/flight", !test, fine},
		{"cacheguard", module + "/internal/local/sketch", !test, fine},
		{"cacheguard", module + "/internal/redistest", !test, wrong},
		{"cacheguard", module + "/internal/redistest", test, fine},
		{"cacheguard", module + "/cacheguard/memstore", !test, wrong},
		{"cacheguard", module + "/cacheguard/redisstore", test, fine},
		{"cacheguard", module + "/middleware", test, wrong},
		{"cacheguard", "github.com/redis/go-redis/v9", !test, wrong},
		{"cacheguard", "github.com/redis/go-redis/v9", test, fine},
		{"cacheguard", "github.com/go-chi/chi/v5", !test, wrong},
		{"cacheguard", "github.com/google/uuid", !test, wrong},
		{"cacheguard", "github.com/klauspost/compress/zstd", !test, wrong},
		{"cacheguard", "github.com/vmihailenco/msgpack/v5", !test, wrong},
		{"cacheguard", "google.golang.org/protobuf/proto", !test, wrong},
		{"cacheguard", "google.golang.org/protobuf/proto", test, fine},
		{"cacheguard", "go.opentelemetry.io/otel", !test, wrong},
		{"cacheguard", "testing", !test, wrong},
		{"cacheguard", "testing/synctest", test, fine},
		{"internal/flight", module + "/cacheguard", !test, wrong},
		{"internal/flight", module + "/internal/frame", !test, fine},
		{"internal/eventcount", module + "/cacheguard", !test, fine},
		{"internal/eventcount", module + "/cacheguard/promobserver", !test, wrong},
		{"internal/flight", "github.com/redis/go-redis/v9", !test, wrong},
		{"internal/redistest", "github.com/redis/go-redis/v9/logging", !test, fine},
		{"internal/redistest", module + "/internal/flight", !test, fine},
		{"internal/redistest", "testing", !test, fine},
		{"internal/flight", module + "/internal/redistest", !test, wrong},
		{"internal/redistest", module + "/internal/childproc", !test, fine},
		{"internal/tenure", module + "/internal/childproc", !test, wrong},
		{"cacheguard/lock/zklock", module + "/internal/zktest", !test, wrong},
		{"cacheguard/lock/zklock", module + "/internal/zktest", test, fine},
		{"cacheguard/newstore", module + "/cacheguard", !test, fine},
		{"cacheguard/newstore", module + "/cacheguard/memstore", !test, wrong},
		{"cacheguard/newstore", module + "/cacheguard/storetest", test, fine},
		{"cacheguard/newstore", "example.com/new", !test, wrong},
		{"cacheguard/newstore", "example.com/new", test, fine},
		{"cacheguard/memstore", "github.com/redis/go-redis/v9", !test, wrong},
		{"cacheguard/redisstore", "github.com/redis/go-redis/v9/internal/pool", !test, fine},
		{"cacheguard/storetest", "testing", !test, fine},
		{"cacheguard/storetest", "go.uber.org/goleak", !test, wrong},
		{"cacheguard/compresscodec", "github.com/klauspost/compress/zstd", !test, fine},
		{"cacheguard/compresscodec", "github.com/vmihailenco/msgpack/v5", !test, wrong},
		{"cacheguard/compresscodec", module + "/cacheguard/msgpackcodec", !test, wrong},
		{"cacheguard/redisstore", "github.com/klauspost/compress/s2", !test, wrong},
		{"cacheguard/msgpackcodec", "github.com/vmihailenco/msgpack/v5", !test, fine},
		{"cacheguard/protocodec", "google.golang.org/protobuf/proto", !test, fine},
		{"cacheguard/memstore", "google.golang.org/protobuf/proto", !test, wrong},
		{"cacheguard/otelobserver", "go.opentelemetry.io/otel/metric", !test, fine},
		{"cacheguard/promobserver", "go.opentelemetry.io/otel/metric", !test, wrong},
		{"cacheguard/redisstore/inspect", module + "/cacheguard/redisstore", !test, fine},
		{"cacheguard/redisstore/inspect", module + "/cacheguard/msgpackcodec", !test, fine},
		{"cacheguard/redisstore/inspect", module + "/cacheguard/memstore", !test, wrong},
		{"cacheguard/lock/redislock", module + "/cacheguard/lock", !test, fine},
		{"cacheguard/lock/redislock", module + "/cacheguard/lock/redlock", !test, wrong},
		{"cacheguard/lock/redislock", module + "/cacheguard/redisstore", !test, wrong},
		{"cacheguard/lock/sqllock", "database/sql", !test, fine},
		{"cacheguard/lock/sqllock", "github.com/jackc/pgx/v5", !test, wrong},
		{"cacheguard/lock/sqllock", "modernc.org/sqlite", !test, wrong},
		{"cacheguard/lock/sqllock", "modernc.org/sqlite", test, fine},
		{"cacheguard/lock/sqllock", module + "/internal/pgtest", test, fine},
		{"cacheguard/lock/sqllock", module + "/internal/pgtest", !test, wrong},
		{"cacheguard/lock/locktest", "testing", !test, fine},
		{"cacheguard/lockstore", module + "/cacheguard/lock", !test, fine},
		{"cacheguard/lockstore", module + "/cacheguard/lock/redislock", !test, wrong},
		{"cacheguard/lock", module + "/cacheguard/lockstore", !test, wrong},
		{"cacheguard/guardtest", module + "/cacheguard/memstore", !test, fine},
		{"cacheguard/guardtest", module + "/internal/redistest", !test, fine},
		{"cacheguard/guardtest", module + "/cacheguard/redisstore", !test, wrong},
		{"cacheguard/storetest", module + "/internal/redistest", !test, wrong},
		{"cacheguard/codectest", module + "/cacheguard", !test, fine},
		{"cacheguard/codectest", module + "/internal/frame", !test, wrong},
		{"internal/systemtest", module + "/cacheguard/redisstore", test, fine},
		{"internal/systemtest", module + "/cacheguard/redisstore", !test, wrong},
		{"middleware", module + "/cacheguard", !test, fine},
		{"middleware", module + "/cacheguard/redisstore", !test, wrong},
		{"middleware", module + "/cacheguard/memstore", test, fine},
		{"middleware", "github.com/go-chi/chi/v5", !test, fine},
		{"middleware", "github.com/dunglas/httpsfv", !test, fine},
		{"cacheguard", "github.com/dunglas/httpsfv", !test, wrong},
		{"middleware", module + "/examples/catalog", !test, wrong},
		{"middleware", "net/http/httptest", !test, wrong},
		{"examples/catalog", module + "/middleware", !test, fine},
		{"examples/catalog", module + "/cacheguard/redisstore", !test, fine},
		{"examples/catalog", module + "/bench", !test, wrong},
		{"examples/catalog", module + "/internal/redistest", !test, wrong},
		{"examples/catalog", module + "/internal/redistest", test, fine},
		{"bench", module + "/internal/redistest", !test, fine},
		{"bench/simulator", module + "/bench/report", !test, fine},
		{"bench", module + "/examples/catalog/stages", !test, fine},
		{"bench", "github.com/bsm/redislock", !test, wrong},
		{"bench/internal/program", "github.com/go-redsync/redsync/v4", !test, wrong},
		{"bench/peers", "github.com/go-redsync/redsync/v4/redis/goredis/v9", !test, fine},
		{"bench/peers", module + "/bench/internal/program", !test, fine},
		{"bench/peers", module + "/bench/internal/contender", !test, fine},
		{"bench/peers", module + "/bench/internal/contender/contendertest", test, fine},
		{"bench/peers", module + "/middleware", !test, wrong},
		{
			"bench/internal/contender", "github.com/zeromicro/go-zero/core/stores/cache", !test,
			wrong,
		},
		{"bench/internal/contender", "github.com/maypok86/otter/v2", !test, wrong},
		{"newlayer", module + "/cacheguard", !test, wrong},
		{".", module + "/cacheguard", !test, wrong},
	} {
		if why := forbidden(c.from, c.to, c.test); (why == "") != c.ok {
			t.Errorf("%s imports %s (in a test: %v): %q; want it fine: %v", c.from, c.to, c.test,
				why, c.ok)
		}
	}
}

// forbidden returns the reason why a package of this module may not import another package, or ""
// if it may.
func forbidden(from, to string, test bool) string {
	toHere, here := strings.CutPrefix(to, module+"/")
	switch {
	case here:
		allowed, known := best(layers, from)
		if test {
			allowed += " " + inTests
		}
		switch {
		case !known:
			return "no layer has this package"
		case matches(serversForTests, toHere) && !test && !matches(serversForTestsIn, from):
			return "it is for tests, guardtest and the benchmark"
		case !matches(allowed, toHere):
			return "dependencies point the other way; this one may import " + allowed
		}
	case test:
	case !strings.Contains(strings.Split(to, "/")[0], "."):
		if matches(forTests, to) && !strings.HasSuffix(from, "test") {
			return "it is for tests"
		}
	default:
		importers, known := best(libraries, to)
		if !known {
			return "a new dependency"
		}
		if !matches(importers, from) {
			return "it belongs to " + importers
		}
	}
	return ""
}

// best returns the value of the pattern that fits the path best. This is the pattern with the
// longest fixed part. If two have the same fixed part, it is the pattern for the package itself.
func best(table map[string]string, p string) (value string, ok bool) {
	fit := -1
	for pattern, v := range table {
		root := strings.TrimRight(pattern, "/.*")
		rank := 2 * len(root)
		if root == pattern {
			rank++
		}
		if matches(pattern, p) && rank > fit {
			value, ok, fit = v, true, rank
		}
	}
	return value, ok
}

// matches reports whether one of the patterns matches the path.
func matches(patterns, p string) bool {
	for _, pattern := range strings.Fields(patterns) {
		switch root, below := strings.CutSuffix(pattern, "/..."); {
		case below && (p == root || strings.HasPrefix(p, root+"/")):
			return true
		case !below:
			if ok, err := path.Match(pattern, p); err != nil {
				panic(err)
			} else if ok {
				return true
			}
		}
	}
	return false
}

// eachImport calls each for every import of every Go file below root, in all modules and for all
// operating systems.
func eachImport(root string, each func(file, from, to string)) error {
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := entry.Name()
			if name != root &&
				(base == "testdata" || strings.HasPrefix(base, ".") ||
					strings.HasPrefix(base, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return fmt.Errorf("reading imports: %w", err)
		}
		from, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		for _, imported := range file.Imports {
			to, err := strconv.Unquote(imported.Path.Value)
			if err != nil {
				return err
			}
			each(name, filepath.ToSlash(from), to)
		}
		return nil
	})
}
