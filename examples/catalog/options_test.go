package main

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestOptionDefaults(t *testing.T) {
	got, err := parseOptions(nil, nil)
	want := options{
		host: "localhost", port: 8080, replicas: 1, originDelay: 200 * time.Millisecond,
		ttl: time.Minute, stage: ownStage, lockTTL: 30 * time.Second, logLevel: slog.LevelWarn,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
}

func TestListenAddresses(t *testing.T) {
	for _, c := range []struct {
		addr        string
		first, last string // the addresses of the first and the last of three replicas
	}{
		{"localhost:8080", "localhost:8080", "localhost:8082"},
		{"[::1]:65533", "[::1]:65533", "[::1]:65535"},
		{":9000", ":9000", ":9002"},
		{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"},
	} {
		o, err := parseOptions([]string{"-replicas", "3", "-addr", c.addr}, nil)
		if err != nil || o.listenAddr(0) != c.first || o.listenAddr(2) != c.last {
			t.Errorf("-addr %s: %s to %s (%v), want %s to %s", c.addr, o.listenAddr(0),
				o.listenAddr(2), err, c.first, c.last)
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for _, c := range []struct {
		args  string
		wants []string // in the message
	}{
		{"-replicas 0", []string{"-replicas 0", "1 to 64"}},
		{"-replicas 65", []string{"-replicas 65"}},
		{"-replicas many", []string{"-replicas", "many"}},
		{"-addr localhost", []string{"-addr", `"localhost"`, "host:port"}},
		{"-addr localhost:http", []string{"-addr", "localhost:http", "0 to 65535"}},
		{"-addr localhost:65536", []string{"-addr", "0 to 65535"}},
		{"-addr localhost:65534 -replicas 3", []string{"-addr", "65536"}},
		{"-redis 6379", []string{"-redis", `"6379"`, "host:port"}},
		{"-redis localhost:0", []string{"-redis", "port 0"}},
		{"-zookeeper localhost", []string{"-zookeeper", "host:port"}},
		{"-db mysql://root:secret@localhost", []string{"-db", "postgres://"}},
		{"-stage magic", []string{`-stage "magic"`, "setnxex"}},
		{"-stage herd", []string{"-stage herd", "-zookeeper"}},
		{"-lock-ttl 1ms", []string{"-lock-ttl 1ms", "a second"}},
		{"-log loud", []string{"-log", "loud"}},
		{"-origin-delay -1s", []string{"-origin-delay -1s", "negative"}},
		{"-origin-delay soon", []string{"-origin-delay", "soon"}},
		{"-ttl 0s", []string{"-ttl 0s"}},
		{"-audit -1", []string{"-audit -1"}},
		{"-audit NaN", []string{"-audit NaN"}},
		{"-port 8080", []string{"-port"}},
		{"serve", []string{`"serve"`}},
		{
			"-replicas 0 -ttl 0s -redis x extra",
			[]string{"-replicas 0", "-ttl 0s", "-redis", `"extra"`},
		},
	} {
		t.Run(c.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			for _, want := range c.wants {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("the message lacks %q: %s", want, &stderr)
				}
			}
			if stdout.Len() > 0 {
				t.Errorf("on stdout: %s", &stdout)
			}
		})
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-help"}, &stdout, &stderr); code != 0 ||
		stderr.Len() > 0 {
		t.Errorf("exit code %d, on stderr: %s", code, &stderr)
	}
	for _, flag := range []string{
		"-addr", "-replicas", "-redis", "-zookeeper", "-origin-delay", "-ttl", "-db", "-stage",
		"-lock-ttl", "-audit", "-log",
	} {
		if !strings.Contains(stdout.String(), "  "+flag+" ") {
			t.Errorf("the help lacks %s: %s", flag, &stdout)
		}
	}
}
