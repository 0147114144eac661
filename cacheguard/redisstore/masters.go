package redisstore

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// masters notices that other nodes of a cluster are masters than a moment ago. Who takes over from
// a master that died may not have the last changes it was told of, and the subscription, which is
// at some other node, doesn't break. go-redis knows the masters, as it asks for them when a command
// goes wrong: looking at what it knows costs no trip. It is for one goroutine.
type masters struct {
	probes []string // names in slots all over the cluster; made at the first look
	last   []string
	looked time.Time
	asked  time.Time
}

const (
	mastersLooked = time.Second
	mastersAsked  = 3 * time.Second
)

// probesEach is how many names there are for each breaker. A node with fewer slots than lie between
// two of them is missed.
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

// changed reports, now and then, whether a part of the slots has another master than when it was
// looked last. doubt: a master has been told of changes that its replicas may not have.
func (m *masters) changed(ctx context.Context, c *redis.ClusterClient, doubt bool) bool {
	if time.Since(m.looked) < mastersLooked {
		return false
	}
	if doubt && time.Since(m.asked) >= mastersAsked {
		m.asked = time.Now()
		_ = c.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // asks one node first
	}
	m.looked = time.Now()
	if m.probes == nil {
		m.choose()
	}
	now := make([]string, len(m.probes))
	for i, name := range m.probes {
		node, err := c.MasterForKey(ctx, name)
		if err != nil {
			return false // somebody will be: that is seen then
		}
		now[i] = node.Options().Addr
	}
	was := m.last
	m.last = now
	return was != nil && !slices.Equal(was, now)
}
