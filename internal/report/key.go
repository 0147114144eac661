package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// QuoteKey quotes and shortens a key for an error or a log line, because keys may be long and may
// have any bytes.
func QuoteKey(key string) string {
	const most = 64
	if len(key) > most {
		return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
	}
	return fmt.Sprintf("%q", key)
}

// HashKey returns the first 16 digits of a key's SHA-256, which stand for the key where keys are
// not shown. The command inspect finds the key of such a hash.
func HashKey(key string) string {
	hash := sha256.Sum256([]byte(key))
	return hex.EncodeToString(hash[:8])
}
