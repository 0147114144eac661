package protocol

// Watched has hooks for tests (drivetest). Step is called for each event of a miss. Its arguments
// are the miss before the event, what the miss's driver has in hand, and the actions that the step
// requests. Done is called for each of these actions when the driver performs it.
var Watched struct {
	Step func(miss any, had InHand, was Miss, e Event, do Do)
	Done func(miss any, do Do)
}

// InHand is what a driver has for a miss besides its state: a slot, and a load.
type InHand struct{ Turn, Load bool }
