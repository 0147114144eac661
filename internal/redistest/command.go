package redistest

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// Command is one command on its way from a client to the server. A predicate
// must not keep Args: their memory is used again.
type Command struct {
	Name string   // in upper case
	Args [][]byte // without the name
}

// Script is what EVAL or EVALSHA runs: the text or the SHA-1 in hex, as the
// client sent it. It is "" for any other command.
func (c Command) Script() string {
	if !c.isEval() || len(c.Args) == 0 {
		return ""
	}
	return string(c.Args[0])
}

// String is the command as one would type it, shortened.
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

// keys are the keys the command names: those of script calls and of commands
// that take many, else the first argument.
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

// countedKeys are the keys after a script and their number.
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
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, c.Name) })
	}
}

// IsEval matches calls of one script, which may be given by text or by
// SHA-1, whether the client sends its text or its SHA-1.
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

// HasKey matches the commands that name the key: among those of a script call
// or of a command that takes many keys, else as the first argument.
func HasKey(key string) func(Command) bool {
	return func(c Command) bool {
		return slices.ContainsFunc(c.keys(), func(k []byte) bool { return string(k) == key })
	}
}

// All matches what every one of the predicates matches.
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

// scriptHash names a script as Redis does, which is no matter of security.
func scriptHash(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
