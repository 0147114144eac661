package redisstore

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// A message on a channel:
//
//	1 byte kind, 16 bytes load, 2 bytes length of the cache's name, name, 2 bytes length of the key, key, payload
//
// The payload of "filled" is the frame, or nothing if the frame is large. The payload of "outcome"
// begins with a letter, as in records. After the letter u there is the frame of the result. After
// the other letters there are one byte with the length of an observer's note, the note, and a text.
// The payload of "tags" is the tags, each after one byte with its length, and then the generation
// in 16 digits.
const (
	kindChanged  = 'c'
	kindFilled   = 'f'
	kindOutcome  = 'o'
	kindReleased = 'r'
	kindTags     = 't'
)

var messageKinds = map[byte]cacheguard.MessageKind{
	kindChanged:  cacheguard.MessageChanged,
	kindFilled:   cacheguard.MessageFilled,
	kindOutcome:  cacheguard.MessageOutcome,
	kindReleased: cacheguard.MessageReleased,
	kindTags:     cacheguard.MessageTags,
}

// The letters of outcomes, in messages and in records.
var outcomeLetters = map[cacheguard.OutcomeKind]byte{
	cacheguard.OutcomeFailed:   'f',
	cacheguard.OutcomeUnstored: 'u',
	cacheguard.OutcomeUnshared: 'p',
}

func encodeMessage(kind byte, k cacheguard.Key, load cacheguard.ID, payload ...byte) []byte {
	b := make([]byte, 0, 1+16+2+len(k.Cache)+2+len(k.Key)+len(payload))
	b = append(b, kind)
	b = append(b, load[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(k.Cache)))
	b = append(b, k.Cache...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(k.Key)))
	b = append(b, k.Key...)
	return append(b, payload...)
}

// decodeMessage reads a message. If b is not a message, it returns false: a client that may publish
// on the channel can send anything.
func decodeMessage(b string) (cache string, m cacheguard.Message, ok bool) {
	if len(b) < 1+16 {
		return "", m, false
	}
	m.Kind, ok = messageKinds[b[0]]
	copy(m.Load[:], b[1:17])
	b = b[17:]
	next := func() (s string) {
		if !ok || len(b) < 2 {
			ok = false
			return ""
		}
		n := int(b[0])<<8 | int(b[1])
		if len(b) < 2+n {
			ok = false
			return ""
		}
		s, b = b[2:2+n], b[2+n:]
		return s
	}
	cache, m.Key = next(), next()
	if !ok {
		return "", m, false
	}
	switch m.Kind {
	case cacheguard.MessageFilled:
		if len(b) > 0 {
			m.Frame = []byte(b)
		}
	case cacheguard.MessageOutcome:
		if len(b) == 0 {
			return "", m, false
		}
		m.Outcome, ok = decodeOutcome(b[0], b[1:])
	case cacheguard.MessageTags:
		m.Tags, m.Generation, ok = decodeTags(b)
	}
	return cache, m, ok
}

const generationDigits = 16

func decodeTags(b string) (tags []string, generation int64, ok bool) {
	if len(b) < generationDigits {
		return nil, 0, false
	}
	list := b[:len(b)-generationDigits]
	generation, err := strconv.ParseInt(b[len(list):], 10, 64)
	if err != nil || generation <= 0 || generation >= pastAll {
		return nil, 0, false
	}
	for len(list) > 0 {
		n := 1 + int(list[0])
		if n > len(list) {
			return nil, 0, false
		}
		tags = append(tags, list[1:n])
		list = list[n:]
	}
	return tags, generation, true
}

func encodeOutcome(o cacheguard.Outcome) (letter byte, payload []byte) {
	if o.Kind == cacheguard.OutcomeUnstored {
		return outcomeLetters[o.Kind], o.Frame
	}
	note := o.Note
	if len(note) > math.MaxUint8 {
		note = nil
	}
	payload = append(make([]byte, 0, 1+len(note)+len(o.Text)), byte(len(note)))
	payload = append(payload, note...)
	return outcomeLetters[o.Kind], append(payload, o.Text...)
}

func decodeOutcome(letter byte, payload string) (o cacheguard.Outcome, ok bool) {
	for kind, l := range outcomeLetters {
		if l == letter {
			o.Kind = kind
			if kind == cacheguard.OutcomeUnstored {
				o.Frame = []byte(payload)
				return o, true
			}
			if len(payload) == 0 || len(payload) < 1+int(payload[0]) {
				return cacheguard.Outcome{}, false
			}
			end := 1 + int(payload[0])
			if end > 1 {
				o.Note = []byte(payload[1:end])
			}
			o.Text = payload[end:]
			return o, true
		}
	}
	return o, false
}
