package locktest

import "sync"

// crew is goroutines that end, and if they don't that is a failure.
type crew struct {
	e   *env
	all sync.WaitGroup
}

func (e *env) crew() *crew { return &crew{e: e} }

func (c *crew) do(work func()) { c.all.Go(work) }

// over is closed when all are done.
func (c *crew) over() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.all.Wait()
	}()
	return over
}

// end waits until all are done. Each of them may have had to wait for what must happen.
func (c *crew) end() {
	c.e.Helper()
	c.e.happensWithin(3*c.e.limit, "those who acquire and unlock at once are done", c.over())
}
