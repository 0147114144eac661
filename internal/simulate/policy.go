package simulate

// Policy is a way to protect the origin.
type Policy struct {
	Name  string
	Share bool // the callers of one process share a flight
	Lock  bool // processes take a lock in Redis; a process that doesn't get it polls
	// Processes take a lease in Redis; a process that doesn't get it is woken by a message.
	Lease bool
	Stale bool // within the stale window no request waits for a refresh
	Early bool // readers decide at random to refresh a value before it expires
	Limit bool // the fleet has a budget for loads
}

// Policies are the policies that are compared. Each policy after lease has the features of the
// policy before it, and more.
var Policies = []Policy{
	{Name: "none"},
	{Name: "local", Share: true},
	{Name: "lock", Share: true, Lock: true},
	{Name: "lease", Share: true, Lease: true},
	{Name: "stale", Share: true, Lease: true, Stale: true},
	{Name: "early", Share: true, Lease: true, Stale: true, Early: true, Limit: true},
}
