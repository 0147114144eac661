package zklock

// Tests need these functions for the nodes of locks in ZooKeeper.
var (
	DirOf    = dirOf
	BeforeIn = beforeIn
	TurnOf   = turnOf
)

const BeforeTurn = beforeTurn
