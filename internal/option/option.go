// Package option sets options of this module to their defaults and checks them, so that all
// packages report an invalid option in the same words.
package option

import (
	"fmt"
	"time"
)

// Duration sets an option to its default if it is zero. If the option is less than least, Duration
// returns an error.
func Duration(name string, d *time.Duration, byDefault, least time.Duration) error {
	switch {
	case *d == 0:
		*d = byDefault
	case *d < least:
		return fmt.Errorf("%s is %v, it must be at least %v", name, *d, least)
	}
	return nil
}

// AtMost returns an error if an option is more than most.
func AtMost(name string, d, most time.Duration) error {
	if d <= most {
		return nil
	}
	return fmt.Errorf("%s is %v, it must be at most %v", name, d, most)
}
