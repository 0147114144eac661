package locktest

import "sync"

// crew is a group of goroutines that have to end. If they don't, the case fails.
type crew struct {
	e   *env
	all sync.WaitGroup
}

func (e *env) crew() *crew { return &crew{e: e} }

func (c *crew) do(work func()) { c.all.Go(work) }

// over returns a channel that is closed when all goroutines have ended.
func (c *crew) over() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.all.Wait()
	}()
	return over
}

// end waits until all goroutines have ended. Each of them may have had to wait for an event that
// must happen.
func (c *crew) end() {
	c.e.Helper()
	c.e.happensWithin(3*c.e.limit, "those who acquire and unlock at once are done", c.over())
}
