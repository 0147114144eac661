package lockstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// lockName returns the name of a key's lock. A cache's name has no brace, so no two keys have the
// same lock name. If the name would be too long, it contains a hash of the key instead. Versions
// other than 0 add their number at the end.
func lockName(k cacheguard.Key) string {
	version := ""
	if k.Version > 0 {
		version = strconv.Itoa(int(k.Version))
	}
	name := k.Cache + "{" + k.Key + "}" + version
	if len(name) <= lock.MaxName {
		return name
	}
	sum := sha256.Sum256([]byte(k.Key))
	// No other name begins with a brace.
	return "{" + k.Cache + "}" + hex.EncodeToString(sum[:]) + version
}
