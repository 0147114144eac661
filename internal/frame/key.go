package frame

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strconv"
	"strings"
)

// Keys up to this length stand in the store as they are, longer ones as their hash.
const (
	maxKey     = 512
	hashedMark = "#sha256:"
)

// KeyID is a key as the store sees it: any bytes, but not many. A key that looks like a hashed one
// is hashed too, so no two keys have the same id.
func KeyID(key string) string {
	if len(key) <= maxKey && !strings.HasPrefix(key, hashedMark) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedMark + hex.EncodeToString(sum[:])
}

// Fingerprint is what a frame says about a codec with this name, and about the version of the type
// that it encodes; 0 if there is nothing to say.
func Fingerprint(name string, version int) uint32 {
	if version > 0 {
		name += "\x00" + strconv.Itoa(version) // no name has a zero byte
	}
	if name == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}
