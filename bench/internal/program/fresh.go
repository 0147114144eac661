package program

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
)

// thisRun tells the keys of this process from those of others that have used the same Redis.
var thisRun = rand.Text()[:8]

var prefixes atomic.Int64

// freshPrefix begins the names of keys that nobody has used yet, in this Redis or in this process.
func freshPrefix() string { return fmt.Sprintf("bench:%s:%d:", thisRun, prefixes.Add(1)) }
