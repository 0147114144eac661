package zktest

// Then says what becomes of the connection on which a reply was lost.
type Then int

const (
	// Hangup is the default: the connection is closed, to the client and to the server.
	Hangup Then = iota

	// Silence keeps it open, and nothing more reaches the client.
	Silence
)

// Fault is the loss of one reply.
type Fault struct {
	match  func(Request) bool
	then   Then
	struck chan struct{}

	taken bool // guarded by the proxy's mu: a request was found
}

// Struck is closed when the reply is lost: the server has carried the request out.
func (f *Fault) Struck() <-chan struct{} { return f.struck }

// LoseReply forwards the next request that matches, and loses its reply and all that would follow
// on the connection. match is called one request at a time; it must not wait.
func (p *Proxy) LoseReply(match func(Request) bool, then ...Then) *Fault {
	f := &Fault{match: match, struck: make(chan struct{})}
	if len(then) > 0 {
		f.then = then[0]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// note counts a request and returns the fault that takes it, or nil.
func (p *Proxy) note(r Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	for _, f := range p.faults {
		if !f.taken && f.match(r) {
			f.taken = true
			return f
		}
	}
	return nil
}
