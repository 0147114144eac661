package faultproxy

// Then is the state of a connection after a part of its data was lost.
type Then int

const (
	// Silence is the behaviour of a network. A stream has no holes, so no more data passes in this
	// direction, and the connection stays open. So a client that pipelines can't mistake another
	// reply for the lost one.
	Silence Then = iota

	// GoOn loses only one command or reply, and the data after it passes. The client then takes the
	// next reply for the lost one, unless it gives the connection up first. No network behaves like
	// this.
	GoOn

	// Hangup closes the connection, to the client and to the server.
	Hangup
)
