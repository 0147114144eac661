package frame

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strconv"
	"strings"
)

// A key of at most maxKey bytes is stored unchanged, unless it begins with hashedMark. Any other
// key is replaced by its hash.
const (
	maxKey     = 512
	hashedMark = "#sha256:"
)

// KeyID returns the form of a key that is used in the store. This id may have any bytes, but its
// length is limited. If a key looks like a hashed key, it is hashed, too. So no two keys have the
// same id.
func KeyID(key string) string {
	if len(key) <= maxKey && !strings.HasPrefix(key, hashedMark) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedMark + hex.EncodeToString(sum[:])
}

// HashOf returns the hash in the id of a key that is hashed.
func HashOf(id string) (hash string, ok bool) { return strings.CutPrefix(id, hashedMark) }

// Fingerprint returns the number that stands in a frame for the name of a codec and the version of
// the type that it encodes. It returns 0 if there is neither a name nor a version.
func Fingerprint(name string, version int) uint32 {
	if version > 0 {
		name += "\x00" + strconv.Itoa(version) // a zero byte, because names hardly ever have one
	}
	if name == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}
