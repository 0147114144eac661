package zktest

import "github.com/cacheguard/cacheguard/internal/faultproxy"

// The state of a connection after a reply was lost on it.
const (
	Silence = faultproxy.Silence
	Hangup  = faultproxy.Hangup
)

// Fault is the loss of one reply.
type Fault struct {
	match  func(Request) bool
	then   faultproxy.Then
	struck chan struct{}

	taken bool // a request was found; guarded by the proxy's mu
}

// Struck returns a channel that is closed when the reply is lost. At that time the server has
// carried the request out.
func (f *Fault) Struck() <-chan struct{} { return f.struck }

// LoseReply forwards the next request that matches. It loses the request's reply and all later data
// on the connection. then is Silence or Hangup. Only one call of match runs at a time. match must
// not wait.
func (p *Proxy) LoseReply(match func(Request) bool, then faultproxy.Then) *Fault {
	f := &Fault{match: match, then: then, struck: make(chan struct{})}
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
