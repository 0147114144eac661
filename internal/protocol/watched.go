package protocol

// Watched has hooks for tests (drivetest). Step is called for each event of a miss, with the miss
// before the event, what its driver has in hand, and what is to be done. Done is called for each
// thing that is then done.
var Watched struct {
	Step func(miss any, had InHand, was Miss, e Event, do Do)
	Done func(miss any, do Do)
}

// InHand is what a driver has for a miss besides its state: a slot, and a load.
type InHand struct{ Turn, Load bool }
