package zktest

// Then is the state of a connection after a reply was lost on it.
type Then int

const (
	// Hangup is the default. The connection is closed, to the client and to the server.
	Hangup Then = iota

	// Silence keeps the connection open, and no more data reaches the client.
	Silence
)

// Fault is the loss of one reply.
type Fault struct {
	match  func(Request) bool
	then   Then
	struck chan struct{}

	taken bool // a request was found; guarded by the proxy's mu
}

// Struck returns a channel that is closed when the reply is lost. At that time the server has
// carried the request out.
func (f *Fault) Struck() <-chan struct{} { return f.struck }

// LoseReply forwards the next request that matches. It loses the request's reply and all later data
// on the connection. Only one call of match runs at a time. match must not wait.
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
