package program

// standLikeARequest gives the calling goroutine a stack as large as that of a server's request when
// it comes to its handler's first call: more than 4 KiB, so 8. A goroutine is born with 2, and
// thousands of callers whose stacks are copied when they begin to wait would be measured instead of
// the waiting.
//
//go:noinline
func standLikeARequest() { occupy(new([5 << 10]byte)) }

// occupy is called with an array that lives on its caller's stack.
//
//go:noinline
func occupy(room *[5 << 10]byte) { room[0] = 1 }
