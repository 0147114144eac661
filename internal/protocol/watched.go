package protocol

// Watched is told, in tests (drivetest), what a miss was told in a state, with what its driver has
// in hand for it then, and what it said; and then what is done for it.
var Watched struct {
	Step func(miss any, had InHand, was Miss, e Event, do Do)
	Done func(miss any, do Do)
}

// InHand is what a driver has for a miss besides its state: a slot, and a load.
type InHand struct{ Turn, Load bool }
