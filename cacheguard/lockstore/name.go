package lockstore

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// lockName is the name of a key's lock. A cache's name has no brace, so no two keys have one name; a key that makes it
// too long is in it as its hash.
func lockName(k cacheguard.Key) string {
	name := k.Cache + "{" + k.Key + "}"
	if len(name) <= lock.MaxName {
		return name
	}
	sum := sha256.Sum256([]byte(k.Key))
	return "{" + k.Cache + "}" + hex.EncodeToString(sum[:]) // no other begins with a brace
}
