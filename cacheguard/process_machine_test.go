package cacheguard_test

import "time"

const (
	// replicaPatience is for what has to happen.
	replicaPatience = time.Minute

	// standstill is for how long a goroutine that wants to run isn't let before the machine counts
	// as standing still.
	standstill = 100 * time.Millisecond
)

// watchMachine tells how long each standstill of this process was, until stop is called.
func watchMachine(tell func(time.Duration)) (stop func()) {
	const beat = 10 * time.Millisecond
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
			case <-end:
				return
			}
			now := time.Now()
			if late := now.Sub(last) - beat; late > standstill {
				tell(late)
			}
			last = now
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
