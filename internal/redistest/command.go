package redistest

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// Command is one command on its way from a client to the server. A predicate must not keep Args,
// because their memory is used again.
type Command struct {
	Name string   // in upper case
	Args [][]byte // without the name
}

// Script returns the script of EVAL or EVALSHA, as the client sent it: the text or the SHA-1 in
// hex. For any other command it returns "".
func (c Command) Script() string {
	if !c.isEval() || len(c.Args) == 0 {
		return ""
	}
	return string(c.Args[0])
}

// String returns the command as one would type it, shortened.
func (c Command) String() string {
	words := []string{c.Name}
	for _, arg := range c.Args[:min(len(c.Args), 8)] {
		words = append(words, strconv.Quote(string(arg[:min(len(arg), 40)])))
	}
	if len(c.Args) > 8 {
		words = append(words, "...")
	}
	return strings.Join(words, " ")
}

func (c Command) isEval() bool {
	switch c.Name {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		return true
	}
	return false
}

func (c Command) hasHash() bool { return strings.HasPrefix(c.Name, "EVALSHA") }

func (c Command) clone() Command {
	args := make([][]byte, len(c.Args))
	for i, arg := range c.Args {
		args[i] = bytes.Clone(arg)
	}
	return Command{Name: c.Name, Args: args}
}

// keys returns the keys of the command. For script calls and commands that take many keys, it
// returns all keys. For other commands it returns the first argument.
func (c Command) keys() [][]byte {
	switch c.Name {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO":
		return c.countedKeys()
	case "DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "WATCH":
		return c.Args
	case "MSET", "MSETNX":
		var keys [][]byte
		for pair := range slices.Chunk(c.Args, 2) {
			keys = append(keys, pair[0])
		}
		return keys
	}
	return c.Args[:min(len(c.Args), 1)]
}

// countedKeys returns the keys of a script call. They follow the script and the number of keys.
func (c Command) countedKeys() [][]byte {
	if len(c.Args) < 2 {
		return nil
	}
	n, err := strconv.Atoi(string(c.Args[1]))
	if err != nil || n < 0 {
		return nil
	}
	return c.Args[2:][:min(n, len(c.Args)-2)]
}

// IsCommand matches the commands with one of these names.
func IsCommand(names ...string) func(Command) bool {
	return func(c Command) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return strings.EqualFold(name, c.Name)
		})
	}
}

// IsEval matches calls of one script. script is its text or its SHA-1. A call matches whether the
// client sends the text or the SHA-1.
func IsEval(script string) func(Command) bool {
	hash := scriptHash(script)
	return func(c Command) bool {
		if sent := c.Script(); c.hasHash() {
			return strings.EqualFold(sent, script) || strings.EqualFold(sent, hash)
		} else if sent != "" {
			return sent == script || strings.EqualFold(scriptHash(sent), script)
		}
		return false
	}
}

// HasKey matches the commands that have the key. For a script call or a command that takes many
// keys, it looks at all keys. For other commands it looks at the first argument.
func HasKey(key string) func(Command) bool {
	return func(c Command) bool {
		return slices.ContainsFunc(c.keys(), func(k []byte) bool { return string(k) == key })
	}
}

// All matches the commands that all predicates match.
func All(predicates ...func(Command) bool) func(Command) bool {
	return func(c Command) bool {
		for _, match := range predicates {
			if !match(c) {
				return false
			}
		}
		return true
	}
}

// scriptHash returns the hash by which Redis names a script. The hash has no security purpose.
func scriptHash(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
