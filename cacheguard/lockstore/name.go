package lockstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// lockName is the name of a key's lock. A cache's name has no brace, so no two keys have one name;
// a key that makes it too long is in it as its hash. Its other versions have a number behind that.
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
	return "{" + k.Cache + "}" + hex.EncodeToString(sum[:]) + version // no other begins with a brace
}
