package redisstore

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// masters notices that the masters of a cluster have changed. After a failover the new master may
// lack the last changes, but the subscription doesn't break, because it is usually at another node.
// When a command fails, go-redis asks for the masters. masters looks at go-redis' knowledge, which
// needs no trip. While a change may be lost, it also makes go-redis ask, every three seconds. A
// masters is used by the goroutine of the subscription, so it never waits for the answer: messages
// would wait too if the node that was asked didn't answer.
type masters struct {
	probes []string // names in slots all over the cluster; made by the first call of changed
	last   []string
	looked time.Time
	asked  time.Time
}

const (
	mastersLooked = time.Second
	mastersAsked  = 3 * time.Second
)

// probesEach is the number of names for each breaker's slots. If all slots of a node lie between
// two of these names, changed misses the node.
const probesEach = 4

func (m *masters) choose() {
	m.probes = make([]string, probesEach*slots/slotsTogether)
	for i, left := 0, len(m.probes); left > 0; i++ {
		name := strconv.Itoa(i)
		if at := slotOf(name) * len(m.probes) / slots; m.probes[at] == "" {
			m.probes[at] = name
			left--
		}
	}
}

// changed reports whether some slots have got a new master since the last look. It looks at most
// once a second. doubt says that a master may know changes that its replicas don't have.
func (m *masters) changed(ctx context.Context, c *redis.ClusterClient, doubt bool) bool {
	if time.Since(m.looked) < mastersLooked {
		return false
	}
	if doubt && time.Since(m.asked) >= mastersAsked {
		m.asked = time.Now()
		c.ReloadState(ctx) // in the background, one request at a time; a later look sees the answer
	}
	m.looked = time.Now()
	if m.probes == nil {
		m.choose()
	}
	now := make([]string, len(m.probes))
	for i, name := range m.probes {
		node, err := c.MasterForKey(ctx, name)
		if err != nil {
			return false // no master at the moment: the next look sees the new one
		}
		now[i] = node.Options().Addr
	}
	was := m.last
	m.last = now
	return was != nil && !slices.Equal(was, now)
}
