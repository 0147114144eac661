package flight

import (
	"context"
	"time"
)

// announced holds the latest word that the work has told the members, and wakes members that wait
// for the next word. It is guarded by shard.mu.
type announced struct {
	word   any           // the latest word
	spoken chan struct{} // closed when there is another word; made when a member waits for it
}

// offer is the interim result for members that don't want to wait longer for the result. Few
// flights have one, so it is not part of a flight: it would make every flight larger by a result.
type offer[T any] struct {
	interim T             // set once, before made is closed
	expires time.Time     // when interim is no longer offered
	set     bool          // interim is set; guarded by shard.mu
	made    chan struct{} // closed when interim is set
}

// Offer gives the flight an interim result for members that don't want to wait longer. They can
// take it until it expires. Call Offer at most once.
func (f *Flight[T]) Offer(interim T, expires time.Time) {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	o := f.offering()
	o.interim, o.expires, o.set = interim, expires, true
	// Members that came before the offer take it soon; if it has expired by then, they urge again.
	f.urged = false
	close(o.made)
}

// offering returns the flight's offer, which may not be set yet. The caller holds shard.mu.
func (f *Flight[T]) offering() *offer[T] {
	if f.offer == nil {
		f.offer = &offer[T]{made: make(chan struct{})}
	}
	return f.offer
}

// WaitAtMost is Wait with a limit. After the member has waited for patience, it takes the flight's
// offer as soon as there is one. taken reports whether the member took the offer. If the offer has
// expired by then, WaitAtMost calls expired and waits for the result.
func (f *Flight[T]) WaitAtMost(
	ctx context.Context, patience time.Duration, expired func(),
) (result T, taken bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-f.done:
		return f.result, false, nil
	case <-ctx.Done():
	case <-timer.C:
		f.shard.mu.Lock()
		o := f.offering()
		f.shard.mu.Unlock()
		select {
		case <-f.done:
			return f.result, false, nil
		case <-ctx.Done():
		case <-o.made:
			if time.Now().Before(o.expires) {
				if f.Leave() {
					return o.interim, true, nil
				}
				return f.result, false, nil
			}
			expired()
			result, err = f.Wait(ctx)
			return result, false, err
		}
	}
	if f.Leave() {
		return result, false, ctx.Err()
	}
	return f.result, false, nil
}

// Offers reports whether there is an offer that members can take now.
func (f *Flight[T]) Offers() bool {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	return f.offer != nil && f.offer.set && time.Now().Before(f.offer.expires)
}

// Announce tells the members a word before the work ends. Members that join later hear only the
// latest word.
func (f *Flight[T]) Announce(word any) {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	f.word = word
	if f.spoken != nil {
		close(f.spoken)
		f.spoken = nil
	}
}

// Word returns the latest announced word, or nil if there is none. It also returns a channel that
// is closed when another word is announced.
func (f *Flight[T]) Word() (last any, next <-chan struct{}) {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	if f.spoken == nil {
		f.spoken = make(chan struct{})
	}
	return f.word, f.spoken
}
