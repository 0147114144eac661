package mailbox

import (
	"runtime"
	"slices"
	"sync"
	"testing"
)

// Each posted function is called once and in order, also if another posted function has posted it.
// A closed box accepts no functions.
func TestRead(t *testing.T) {
	var b Box
	b.Init()
	var done []int
	post := func(n int) { b.Post(func() { done = append(done, n) }) }
	post(1)
	b.Post(func() { post(3) })
	post(2)
	<-b.Ready()
	b.Read()
	if !slices.Equal(done, []int{1, 2, 3}) {
		t.Errorf("done: %v", done)
	}
	post(4)
	b.Close()
	if b.Post(func() { t.Error("done after Close") }) || !slices.Equal(done, []int{1, 2, 3, 4}) {
		t.Errorf("done: %v", done)
	}
}

// What ends the goroutine keeps nothing from being done that comes after it.
func TestGoexit(t *testing.T) {
	var b Box
	b.Init()
	rest := false
	b.Post(func() { runtime.Goexit() })
	b.Post(func() { rest = true })
	var reading sync.WaitGroup
	reading.Go(func() {
		defer b.Close()
		b.Read()
	})
	if reading.Wait(); !rest {
		t.Error("the rest was left undone")
	}
}

// Whoever posts, nothing is lost, and who waits for Ready finds everything.
func TestPost(t *testing.T) {
	const posters, each = 8, 200
	var b Box
	b.Init()
	n := 0
	for range posters {
		go func() {
			for range each {
				if !b.Post(func() { n++ }) {
					t.Error("the box is open")
				}
			}
		}()
	}
	for n < posters*each {
		<-b.Ready()
		b.Read()
	}
}
