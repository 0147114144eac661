package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
	"github.com/cacheguard/cacheguard/cacheguard/msgpackcodec"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// environment is a set of environment variables.
type environment map[string]string

// runs runs the command.
func (e environment) runs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, func(name string) string { return e[name] }, &out, &errs)
	return code, out.String(), errs.String()
}

// prints runs the command and returns its output.
func (e environment) prints(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := e.runs(t, args...)
	if code != 0 || errs != "" {
		t.Fatalf("%q: exit code %d, %s", args, code, errs)
	}
	return out
}

func has(t *testing.T, text string, words ...string) {
	t.Helper()
	flat := strings.Join(strings.Fields(text), " ")
	for _, w := range words {
		if !strings.Contains(flat, w) {
			t.Errorf("it doesn't say %q:\n%s", w, text)
		}
	}
}

// stored stores a value through a cache with this codec.
func stored[V any](
	t *testing.T, rdb redis.UniversalClient, prefix, name string, codec cacheguard.Codec[V], v V,
) {
	t.Helper()
	s, err := redisstore.New(rdb, redisstore.Options{Prefix: prefix, OpTimeout: 10 * time.Second})
	must(t, err)
	defer s.Close()
	c, err := cacheguard.New(s,
		cacheguard.Options[V]{Name: name, Codec: codec, LeaseTTL: time.Minute})
	must(t, err)
	defer c.Close()
	must(t, c.Set(t.Context(), "k", v))
}

type product struct {
	Name  string   `json:"name"`
	Sizes []int    `json:"sizes"`
	More  []string `json:"more,omitempty"`
}

// Inspect knows the name of each codec of this module. In Redis it finds only the fingerprint of
// the name.
func TestNamesOfCodecs(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: redistest.Shared(t).Addr(), ContextTimeoutEnabled: true,
	})
	defer rdb.Close()
	compressed := func(inner cacheguard.Codec[string]) cacheguard.Codec[string] {
		c, err := compresscodec.New(compresscodec.Options[string]{Inner: inner})
		must(t, err)
		return c
	}
	s, err := redisstore.New(rdb, redisstore.Options{Prefix: "named", OpTimeout: time.Minute})
	must(t, err)
	defer s.Close()
	for _, codec := range []cacheguard.Codec[string]{
		cacheguard.JSON[string]{}, msgpackcodec.Codec[string]{}, compressed(nil),
		compressed(cacheguard.JSON[string]{}),
		compressed(msgpackcodec.Codec[string]{}),
		compressed(struct{ cacheguard.Codec[string] }{cacheguard.JSON[string]{}}),
	} {
		name := codec.(interface{ Name() string }).Name()
		stored(t, rdb, "named", name, codec, "text")
		found, err := s.Inspect(t.Context(), name, "k")
		must(t, err)
		if found.Value == nil || found.Value.Codec != name {
			t.Errorf("%q is said to be %+v", name, found.Value)
		}
	}
}

// The command shows each kind of value correctly, as text and as JSON.
func TestValues(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: redistest.Shared(t).Addr(), ContextTimeoutEnabled: true,
	})
	defer rdb.Close()
	compressed, err := compresscodec.New(compresscodec.Options[product]{Threshold: -1})
	must(t, err)
	zipped, err := compresscodec.New(compresscodec.Options[product]{
		Threshold: -1, Algorithm: compresscodec.Zstd, Inner: msgpackcodec.Codec[product]{},
	})
	must(t, err)
	small := product{Name: "lamp", Sizes: []int{1, 2}}
	large := product{Name: "lamp", Sizes: []int{3}, More: []string{strings.Repeat("ab ", 1000)}}
	stored(t, rdb, "shop:1", "json", nil, small)
	stored(t, rdb, "shop:1", "msgpack", msgpackcodec.Codec[product]{}, small)
	stored(t, rdb, "shop:1", "compressed", compressed, large)
	stored(t, rdb, "shop:1", "zipped", zipped, large)
	stored(t, rdb, "shop:1", "text", nil, "a lamp\x1b[31m\u202e, or two")
	stored(t, rdb, "shop:1", "lines", nil, "a lamp\nor two")
	stored(t, rdb, "shop:1", "json text", nil, `{"a":[1]}`)
	stored(t, rdb, "shop:1", "bytes", nil, []byte{0xff, 0, 'l', 'a', 'm', 'p'})
	stored(t, rdb, "shop:1", "deep", nil, strings.Repeat("[", 5000)+strings.Repeat("]", 5000))
	e := environment{"REDIS_URL": "redis://" + rdb.Options().Addr}
	for cache, test := range map[string]struct {
		args []string
		says []string
		body string // in JSON
	}{
		"json": {
			nil, []string{"codec json", `29 bytes, JSON: { "name": "lamp", "sizes": [ 1, 2 ] }`},
			`{"name":"lamp","sizes":[1,2]}`,
		},
		"msgpack": {
			nil, []string{"codec msgpack", "bytes, MessagePack as JSON:", `"Name": "lamp"`},
			`{"More":null,"Name":"lamp","Sizes":[1,2]}`,
		},
		"compressed": {
			nil, []string{"codec compress(json)", "3039 bytes, ", " compressed, JSON:", `"ab ab`},
			"",
		},
		"zipped": {
			[]string{"-bytes", "100"},
			[]string{"codec compress(msgpack)", "compressed, MessagePack as JSON:", "bytes more"},
			"",
		},
		"lines": {
			nil, []string{"codec raw", "13 bytes, text: a lamp or two"}, `"a lamp\nor two"`,
		},
		"json text": {nil, []string{"codec raw", `9 bytes, JSON: { "a": [ 1 ] }`}, `{"a":[1]}`},
		"text":      {nil, []string{"codec raw", "00000000 61 20 6c 61 6d 70 1b"}, ""},
		"bytes": {
			[]string{"-bytes", "64"},
			[]string{"codec raw", "6 bytes: 00000000 ff 00 6c 61 ", "and 2 bytes more"}, "",
		},
		"deep": {nil, []string{"10000 bytes, JSON: [[[["}, ""},
	} {
		args := append(test.args, "-prefix", "shop:1", "-value", cache, "k")
		text := e.prints(t, args...)
		has(t, text, test.says...)
		if strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%s: not for a terminal: %q", cache, text)
		}
		if len(text) > 20<<10 {
			t.Errorf("%s: %d bytes", cache, len(text))
		}
		var found struct {
			State redisstore.State
			Body  json.RawMessage
			Bytes []byte
		}
		must(t, json.Unmarshal([]byte(e.prints(t, append([]string{"-json"}, args...)...)), &found))
		var body bytes.Buffer
		if found.Body != nil {
			must(t, json.Compact(&body, found.Body))
		}
		if found.State != redisstore.StateFresh || test.body != "" && body.String() != test.body ||
			(found.Body == nil) == (found.Bytes == nil) {
			t.Errorf("%s: %+v, want %s", cache, found, test.body)
		}
	}
	if text := e.prints(t, "-prefix", "shop:1", "json", "k"); strings.Contains(text, "lamp") {
		t.Errorf("it shows a value without -value:\n%s", text)
	}
	// The command uses another prefix.
	has(t, e.prints(t, "-value", "json", "k"), "nothing is stored")
	has(t, e.prints(t, "-prefix", "shop:1", "-scan", "json"), "values 1, of", "fresh 1 (100.0 %)")
	has(t, e.prints(t, "-prefix", "shop:1", "-find", "0123456789", "json"),
		"hash no key that stands here now", "begins with 0123456789")
	has(t, e.prints(t, "-prefix", "shop:1", "-scan", "unknown"),
		"nothing is stored of a cache of this name")
	has(t, e.prints(t, "-prefix", "shop:1", "unknown", "k"),
		`nothing at all is stored of a cache "unknown"`)
	must(t, rdb.Set(t.Context(), "shop:1:foreign:{k}:lease", "of another program", 0).Err())
	if text := e.prints(t, "-prefix", "shop:1", "foreign", "k"); strings.Contains(text,
		"nothing at all") || !strings.Contains(text, "neither a lease nor a record") {
		t.Errorf("something stands under the lease's name:\n%s", text)
	}
	has(t, e.prints(t, "-prefix", "shop:1", "-scan", "foreign"),
		"foreign 1 entries under the names of leases are not cacheguard's")
	if text := e.prints(t, "-prefix", "shop:1", "-scan", "foreign"); strings.Contains(text,
		"nothing is stored") {
		t.Errorf("something stands under the lease's name:\n%s", text)
	}
	if text := e.prints(t, "-prefix", "shop:1", "json", "another"); strings.Contains(text,
		"nothing at all") {
		t.Errorf("of the cache there is something:\n%s", text)
	}
	if _, _, errs := e.runs(t, "-find", "0123"); !strings.Contains(errs, "-find HASH CACHE") ||
		strings.Contains(errs, "arguments") {
		t.Errorf("-find without a cache: %s", errs)
	}
	var diagnosed struct {
		Addr, User, Prefix string
		Parts              []struct {
			Name  string
			Works bool
		}
	}
	must(t,
		json.Unmarshal([]byte(e.prints(t, "-prefix", "shop:1", "-diagnose", "-json")), &diagnosed))
	if diagnosed.Addr != rdb.Options().Addr || diagnosed.User != "default" ||
		diagnosed.Prefix != "shop:1" ||
		len(diagnosed.Parts) < 10 || !diagnosed.Parts[0].Works {
		t.Errorf("%+v", diagnosed)
	}
	var scanned redisstore.Scanned
	must(t,
		json.Unmarshal(
			[]byte(e.prints(t, "-prefix", "shop:1", "-scan", "-limit", "-1", "-pause", "0", "-json",
				"text")), &scanned))
	if scanned.Values != 1 || !scanned.Whole || scanned.States[redisstore.StateFresh] != 1 {
		t.Errorf("%+v", scanned)
	}
}

// A value that can't be shown otherwise is shown in hexadecimal, with the reason.
func TestShow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		codec, body string
		says        string
	}{
		{"compress(json)", "\x07x", "can't be decompressed"},
		{"compress(json)", "", "can't be decompressed"},
		{"msgpack", "\xc1", "no MessagePack"},
		{"msgpack", "\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", "can't be shown as JSON"}, // NaN
		{"json", "{", "1 bytes, text: {"},
		{"", "7", "1 bytes, JSON: 7"},
		{"raw", "7", "1 bytes, text: 7"},
		{"compress", "\x00{}", "2 bytes, 3 compressed, JSON: {}"},
		{"", "\xff", "1 bytes: 00000000 ff"},
		{"raw", "", "0 bytes, text:"},
	} {
		got := show(&redisstore.InspectedValue{Codec: test.codec, Body: []byte(test.body)}, 1<<10)
		has(t, got.text, test.says)
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	}
	has(t, show(&redisstore.InspectedValue{NotFound: true}, 10).text, "it does not exist")
	if got := show(&redisstore.InspectedValue{Codec: "raw", Body: []byte("äöü")},
		3); !strings.Contains(got.text, "and 3 bytes more") || string(got.Bytes) != "äöü"[:3] {
		t.Errorf("cut in a letter: %+v", got)
	}
}

// FuzzShow shows that any value can be printed as text and as JSON, and that the output has no
// command for a terminal.
func FuzzShow(f *testing.F) {
	for _, codec := range []string{
		"", "json", "raw", "msgpack", "compress(json)", "compress", "http-response-2",
	} {
		f.Add(codec, []byte(`{"a":"\u001b\u202e"}`), 10)
		f.Add(codec, []byte("\x81\xa1a\xc0"), 1000)
		f.Add(codec, []byte("\x00text\x1b"), 0)
	}
	f.Fuzz(func(t *testing.T, codec string, body []byte, most int) {
		most = max(0, min(most, 1<<16))
		got := show(&redisstore.InspectedValue{Codec: codec, Body: body}, most)
		if text := strings.NewReplacer("\n", "", "\t",
			"").Replace(got.text); printable(text) != text {
			t.Errorf("not for a terminal: %q", got.text)
		}
		if len(got.text) > 12*most+1000 {
			t.Errorf("%d bytes of text for %d", len(got.text), most)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	})
}

// If an argument can't be understood, the command says so before it asks Redis.
func TestBadArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, test := range []struct {
		args string
		says string
	}{
		{"", "0 arguments after the flags, want 2"},
		{"-redis localhost:6379 product", "1 arguments after the flags, want 2"},
		{"-redis localhost:6379 -scan product 42", "2 arguments after the flags, want 1"},
		{"product 42", "-redis host:port, or REDIS_URL"},
		{"-redis localhost product 42", `-redis "localhost": want host:port`},
		{"-redis a:1,b:2 product 42", "say -cluster, or -sentinel"},
		{"-redis http://user:hidden@a product 42", "-redis is no URL that go-redis knows"},
		{"-redis redis://user:hidden@a:x/0 product 42", "-redis is no URL that go-redis knows"},
		{"-redis a:1 -cluster -sentinel m product 42", "exclude each other"},
		{"-redis a:1 -cluster -db 1 product 42", "a cluster has no databases"},
		{"-redis a:1 -timeout 0 product 42", "-timeout 0s is too short"},
		{"-redis a:1 -bytes -1 product 42", "-bytes -1 is below zero"},
		{"-redis a:1 -limit 0 -scan product", "looks at nothing"},
		{"-redis a:1 -scan -diagnose", "-diagnose goes without -scan and -find"},
		{"-redis a:1 -find abc", "-find needs the name of the cache behind it: -find HASH CACHE"},
		{"-redis a:1 -diagnose product", "1 arguments after the flags, want 0"},
		{
			"-redis a:1 -find xyz product",
			"-find \"xyz\" is not the beginning of a SHA-256 in hexadecimal",
		},
		{"-redis a:1 -find abc product 42", "2 arguments after the flags, want 1"},
		{"-redis a:1 -scan -value product", "-scan shows no values"},
		{"-redis a:1 -cert c product 42", "are for -tls"},
		{
			"-redis a:1 -tls -cert " + filepath.Join(dir, "c") + " -key k product 42",
			"-cert and -key: open",
		},
		{"-unknown product 42", "flag provided but not defined: -unknown"},
	} {
		code, out, errs := environment{}.runs(t, strings.Fields(test.args)...)
		if code != 2 || out != "" {
			t.Errorf("%s: exit code %d, %q", test.args, code, out)
		}
		has(t, errs, test.says)
		if strings.Contains(errs, "hidden") {
			t.Errorf("%s: it shows a password: %s", test.args, errs)
		}
	}
	for args, says := range map[string]string{
		"-redis a:1 {product 42":          `no cache can have the name "{product"`,
		"-redis a:1 -prefix { product 42": "has a brace",
	} {
		if code, _, errs := (environment{}).runs(t, strings.Fields(args)...); code != 1 ||
			!strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d, %s", args, code, errs)
		}
	}
	code, out, errs := environment{"REDIS_URL": "redis://:hidden@a:1"}.runs(t, "-help")
	if code != 0 || out != "" || strings.Contains(errs, "hidden") {
		t.Errorf("-help: exit code %d, %q", code, out)
	}
	has(t, errs, "usage: inspect [flags] CACHE KEY", "-password-env string")
}

// The test covers the ways to connect to Redis, and the error for each way that fails.
func TestServers(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "hidden", "--databases", "4")
	fill := func(rdb redis.UniversalClient) {
		t.Helper()
		defer rdb.Close()
		stored(t, rdb, "", "product", nil, "lamp")
	}
	fill(redis.NewClient(&redis.Options{
		Addr: server.Addr(), Password: "hidden", DB: 3, ContextTimeoutEnabled: true,
	}))
	cluster := redistest.StartCluster(t, 3, 0)
	fill(redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), ContextTimeoutEnabled: true,
	}))
	sentinel := redistest.StartSentinel(t, 0, 1)
	fill(redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.SentinelMaster, SentinelAddrs: sentinel.Addrs(),
		ContextTimeoutEnabled: true,
	}))

	password := environment{"REDIS_PASSWORD": "hidden", "OTHER": "hidden"}
	for _, test := range []struct {
		env  environment
		args string
		says string
	}{
		{password, "-redis " + server.Addr() + " -db 3", ""},
		{password, "-redis " + server.Addr() + " -db 3 -user default -password-env OTHER", ""},
		{password, "-redis redis://default@" + server.Addr() + "/3", ""},
		{environment{"REDIS_URL": "redis://:hidden@" + server.Addr() + "/3"}, "", ""},
		{nil, "-redis " + cluster.Addrs()[0] + " -cluster", ""},
		{nil, "-redis " + strings.Join(cluster.Addrs(), ",") + " -cluster", ""},
		{nil, "-redis " + sentinel.Addrs()[0] + " -sentinel " + redistest.SentinelMaster, ""},

		{
			nil, "-redis " + server.Addr(),
			"NOAUTH Authentication required.) -user gives the user, the environment variable REDIS_PASSWORD gives the password",
		},
		{environment{"REDIS_PASSWORD": "wrong"}, "-redis " + server.Addr(), "WRONGPASS"},
		{nil, "-redis 127.0.0.1:1", "127.0.0.1:1: connect: connection refused"},
		{nil, "-redis " + sentinel.Addrs()[0], "this is a Sentinel, which has no data"},
		{
			nil, "-redis " + server.Addr() + " -tls -timeout 100ms",
			server.Addr() + " doesn't answer: is it the right port",
		},
	} {
		args := append(strings.Fields(test.args), "product", "k")
		if test.says == "" {
			has(t, test.env.prints(t, args...), "fresh: a caller gets it")
			has(t, test.env.prints(t, append(strings.Fields(test.args), "-scan", "product")...),
				"values 1, of")
			continue
		}
		code, out, errs := test.env.runs(t, args...)
		if code != 1 || out != "" || strings.Contains(errs, "hidden") {
			t.Errorf("%s: exit code %d, %q", test.args, code, out)
		}
		has(t, errs, test.says)
	}
	for _, addr := range cluster.Addrs() { // two of three don't have the key
		if code, _, errs := (environment{}).runs(t, "-redis", addr, "product", "k"); code == 1 &&
			strings.Contains(errs, "add -cluster") {
			return
		}
	}
	t.Error("no node says that it is one of a cluster")
}

// A key is found by the beginning of its hash, also a key that is only being loaded, and a key
// whose name is escaped.
func TestFind(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	s, err := redisstore.New(rdb, redisstore.Options{OpTimeout: 10 * time.Second})
	must(t, err)
	defer s.Close()
	c, err := cacheguard.New(s, cacheguard.Options[int]{Name: "product", LeaseTTL: time.Minute})
	must(t, err)
	defer c.Close()
	const strange = "}:lease{ \\"
	for _, key := range []string{"42", "43", strange} {
		must(t, c.Set(t.Context(), key, 1))
	}
	_, err = s.Lease(t.Context(), cacheguard.Key{Cache: "product", Key: "loading"},
		cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Minute})
	must(t, err)
	for _, key := range []string{"42", strange, "loading"} {
		hash := sha256.Sum256([]byte(key))
		for _, digits := range []string{"%X", "%x"} {
			text := environment{}.prints(t, "-redis", server.Addr(), "-find",
				fmt.Sprintf(digits, hash[:8]), "product")
			has(t, text, "found "+strings.Join(strings.Fields(strconv.Quote(key)), " "))
			if n := strings.Count(text, "found"); n != 1 {
				t.Errorf("%q is found %d times: %s", key, n, text)
			}
		}
	}
	if text := (environment{}).prints(t, "-redis", server.Addr(), "-find", "00000000",
		"product"); strings.Contains(text, "found") {
		t.Error(text)
	}
	long := strings.Repeat("x", 600)
	must(t, c.Set(t.Context(), long, 1))
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(long)))
	text := environment{}.prints(t, "-redis", server.Addr(), "-find", hash[:16], "product")
	if has(t, text, "found a key of which Redis has only the hash "+hash); strings.Contains(text,
		"no key") {
		t.Error(text)
	}
}

// Without -version, a key is found under the names of either kind of versions.
func TestVersions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: redistest.Shared(t).Addr(), ContextTimeoutEnabled: true,
	})
	defer rdb.Close()
	s, err := redisstore.New(rdb,
		redisstore.Options{Prefix: "versions", OpTimeout: 10 * time.Second})
	must(t, err)
	defer s.Close()
	for version, says := range map[int]string{
		0: "a caller gets it", 1: "a caller gets it", 2: "made for Options.Version 2",
		3: "made for Options.Version 3",
	} {
		name := fmt.Sprint("v", version)
		c, err := cacheguard.New(s,
			cacheguard.Options[int]{Name: name, Version: version, LeaseTTL: time.Minute})
		must(t, err)
		must(t, c.Set(t.Context(), "k", 1))
		must(t, c.Close())
		args := []string{"-redis", rdb.Options().Addr, "-prefix", "versions", name, "k"}
		has(t, environment{}.prints(t, args...), says)
		has(t,
			environment{}.prints(t, append([]string{"-version", fmt.Sprint(version)}, args...)...),
			"a caller gets it")
	}
}

// The exit code also says whether a cache can use the Redis.
func TestDiagnosis(t *testing.T) {
	server := redistest.Start(t)
	has(t, environment{}.prints(t, "-redis", server.Addr(), "-diagnose"), "has all rights works",
		"brings messages works")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	must(t,
		rdb.Do(t.Context(), "ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all",
			"-setrange", "-zadd").Err())
	code, out, errs := environment{}.runs(t, "-redis", "redis://poor:secret@"+server.Addr(),
		"-diagnose")
	has(t, out, "has all rights DOESN'T WORK: the Redis user lacks +setrange +zadd")
	if has(t, errs, "not everything works"); code != 1 {
		t.Errorf("exit code %d", code)
	}
}
