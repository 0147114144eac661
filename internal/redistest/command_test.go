package redistest

import (
	"strings"
	"testing"
)

func command(words ...string) Command {
	c := Command{Name: strings.ToUpper(words[0])}
	for _, word := range words[1:] {
		c.Args = append(c.Args, []byte(word))
	}
	return c
}

func TestPredicates(t *testing.T) {
	const text = "return redis.call('GET', KEYS[1])"
	hash := scriptHash(text)
	for _, test := range []struct {
		name  string
		match func(Command) bool
		yes   []Command
		no    []Command
	}{
		{
			"IsCommand", IsCommand("GET", "set"),
			[]Command{command("get", "k"), command("SET", "k", "v")},
			[]Command{command("GETEX", "k"), command("PING")},
		},
		{
			"IsEval by text", IsEval(text),
			[]Command{
				command("EVAL", text, "0"), command("EVALSHA", hash, "0"),
				command("EVALSHA_RO", strings.ToUpper(hash), "0"),
			},
			[]Command{
				command("EVAL", "return 1", "0"), command("EVALSHA", scriptHash("x"), "0"),
				command("EVAL"), command("GET", text),
			},
		},
		{
			"IsEval by hash", IsEval(hash),
			[]Command{
				command("EVAL", text, "0"), command("EVALSHA", hash, "0"),
				command("EVAL_RO", text, "0"),
			},
			[]Command{
				command("EVAL", "return 1", "0"), command("EVALSHA", scriptHash("x"), "0"),
				command("GET", hash),
			},
		},
		{
			"HasKey", HasKey("k"),
			[]Command{
				command("GET", "k"), command("SET", "k", "v"), command("DEL", "a", "k"),
				command("MSET", "a", "1", "k", "2"),
				command("EVAL", text, "2", "a", "k", "arg"), command("FCALL", "f", "1", "k"),
			},
			[]Command{
				command("PING"), command("SET", "a", "k"), command("MSET", "a", "k"),
				command("EVAL", text, "1", "a", "k"),
				command("EVAL", text, "x", "k"), command("EVAL", text),
				command("EVAL", text, "-1", "k"), command("EVALSHA", "k", "0"),
			},
		},
		{
			"HasKey beyond the arguments", HasKey("k"),
			[]Command{command("EVAL", text, "99", "k")},
			[]Command{command("EVAL", text, "99", "a")},
		},
		{
			"All", All(IsCommand("GET"), HasKey("k")),
			[]Command{command("GET", "k")},
			[]Command{command("GET", "a"), command("SET", "k", "v")},
		},
		{"All of nothing", All(), []Command{command("PING")}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, c := range test.yes {
				if !test.match(c) {
					t.Errorf("doesn't match %v", c)
				}
			}
			for _, c := range test.no {
				if test.match(c) {
					t.Errorf("matches %v", c)
				}
			}
		})
	}
}

func TestCommandScript(t *testing.T) {
	for want, c := range map[string]Command{
		"return 1": command("EVAL", "return 1", "0"),
		"abc":      command("EVALSHA", "abc", "0"),
		"":         command("GET", "k"),
	} {
		if got := c.Script(); got != want {
			t.Errorf("%v: %q", c, got)
		}
	}
}

func TestCommandStringIsShort(t *testing.T) {
	if got := command("SET", "k", "a b").String(); got != `SET "k" "a b"` {
		t.Error(got)
	}
	words := []string{"DEL"}
	for range 1000 {
		words = append(words, strings.Repeat("x", 1000))
	}
	if got := command(words...).String(); len(got) > 500 || !strings.HasSuffix(got, "...") {
		t.Error(got)
	}
}
