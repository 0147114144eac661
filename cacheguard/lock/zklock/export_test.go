package zklock

// What tests need to know of the form in which locks are in ZooKeeper.
var (
	DirOf    = dirOf
	BeforeIn = beforeIn
	TurnOf   = turnOf
)

const BeforeTurn = beforeTurn
