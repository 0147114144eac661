//go:build !linux

package program

import "time"

func pause(d time.Duration) { time.Sleep(d) }
