package program

import (
	"fmt"
	"strconv"
	"strings"
)

// version names a value, as the origin does.
type version int64

const versionDigits = 19

// value is what the origin returns: the version in so many bytes.
func (v version) value(size int) string {
	s := fmt.Sprintf("%0*d", versionDigits, int64(v))
	return s + strings.Repeat(".", max(size-len(s), 0))
}

// versionOf reads a value. A protection that answers quickly and wrongly has not won.
func versionOf(value string, size int) (version, error) {
	if len(value) != max(size, versionDigits) {
		return 0, fmt.Errorf("got a wrong value of %d bytes", len(value))
	}
	n, err := strconv.ParseInt(value[:versionDigits], 10, 64)
	return version(n), err
}
