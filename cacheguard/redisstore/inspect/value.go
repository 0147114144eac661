package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
	"github.com/cacheguard/cacheguard/cacheguard/msgpackcodec"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// shown is a value in the forms for people and for programs.
type shown struct {
	Body  any    `json:"body,omitempty"`
	Bytes []byte `json:"bytes,omitempty"`
	text  string
}

// show converts a value into the most readable form, without knowing the value's type. most is the
// largest number of bytes to show; in hexadecimal, people see a sixteenth of that number.
func show(v *redisstore.InspectedValue, most int) shown {
	if v.NotFound {
		return shown{text: "There is no value: it does not exist.\n"}
	}
	body, codec, packed := v.Body, v.Codec, ""
	if strings.HasPrefix(codec, "compress") {
		expanded, err := expand(body)
		if err != nil {
			return inHex(body, fmt.Sprintf("can't be decompressed: %v", err), most)
		}
		packed = fmt.Sprintf(", %d compressed", len(body))
		body, codec = expanded,
			strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(codec, "compress"), "("), ")")
	}
	what := fmt.Sprintf("%d bytes%s, ", len(body), packed)
	if codec == "msgpack" {
		v, err := msgpackcodec.Codec[any]{}.Decode(body)
		if err != nil {
			return inHex(body, what+"no MessagePack: "+printable(err.Error()), most)
		}
		asJSON, err := json.Marshal(v)
		if err != nil { // a number that JSON can't represent
			return inHex(body,
				what+"MessagePack that can't be shown as JSON: "+printable(err.Error()), most)
		}
		return inJSON(asJSON, what+"MessagePack as JSON", most)
	}
	switch {
	case codec != "raw" && json.Valid(body), isObject(body):
		return inJSON(body, what+"JSON", most)
	case isText(body):
		s := shown{
			text: titled(what+"text",
				cut(printable(string(body[:min(len(body), most)])), most, len(body))),
		}
		if len(body) > most {
			s.Bytes = body[:most]
			return s
		}
		s.Body = string(body)
		return s
	}
	return inHex(body, strings.TrimSuffix(what, ", "), most)
}

// expand decompresses a body that compresscodec has compressed, up to compresscodec's default
// limit.
func expand(body []byte) ([]byte, error) {
	codec, err := compresscodec.New(compresscodec.Options[[]byte]{})
	if err != nil {
		return nil, err
	}
	return codec.Decode(body)
}

// isObject reports whether a text seems to be meant as JSON.
func isObject(body []byte) bool {
	start := bytes.TrimLeft(body, " \t\r\n")
	return len(start) > 0 && (start[0] == '{' || start[0] == '[') && json.Valid(body)
}

func isText(body []byte) bool {
	if !utf8.Valid(body) {
		return false
	}
	return !strings.ContainsFunc(string(body), func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r)
	})
}

// JSON that is larger or nested more deeply than these limits is shown as it is stored: indented,
// it could be many times larger.
const (
	mostIndented = 1 << 20
	mostNested   = 64
)

func inJSON(body []byte, what string, most int) shown {
	text := string(body)
	var indented bytes.Buffer
	if len(body) <= mostIndented && nested(body) <= mostNested &&
		json.Indent(&indented, body, "", "  ") == nil {
		text = indented.String()
	}
	all := len(text)
	s := shown{text: titled(what, cut(printable(text[:min(all, most)]), most, all))}
	if len(body) > most {
		s.Bytes = body[:most]
		return s
	}
	s.Body = json.RawMessage(body)
	return s
}

// nested returns how deeply JSON is nested.
func nested(body []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

func inHex(body []byte, what string, most int) shown {
	some := body[:min(len(body), most)]
	few := body[:min(len(body), most/16)]
	return shown{
		Bytes: some,
		text:  titled(what, cut(strings.TrimSuffix(hex.Dump(few), "\n"), most/16, len(body))),
	}
}

func titled(what, text string) string { return what + ":\n" + text + "\n" }

// cut adds to a text that was shortened to most bytes how many of all bytes are not shown.
func cut(text string, most, all int) string {
	if all > most {
		text += fmt.Sprintf("\n... and %d bytes more", all-most)
	}
	return text
}

// printable replaces the characters of a text that a terminal would take for a command or show as
// something else.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text { // half a rune at the cut is replaced, too
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 1<<16:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}
