package storetest

import (
	"fmt"
	"slices"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// tagsTold returns the messages about invalidated tags that have arrived.
func (in *inbox) tagsTold() []cacheguard.Message {
	return slices.DeleteFunc(in.messages(), func(m cacheguard.Message) bool {
		return m.Kind != cacheguard.MessageTags
	})
}

func toldTags(e *env) {
	ins := []*inbox{e.listen(e.a, e.cache), e.listen(e.b, e.cache), e.listen(e.b, e.cache)}
	told := 0
	for i, tags := range [][]string{{"t"}, {"t"}, {"v", "t", "u"}, nil, anyTags(), {}} {
		g := e.invalidateTags(e.fleet.Stores[i%2], tags...)
		told++
		for j, in := range ins {
			e.eventually(fmt.Sprintf("listener %d is told of the invalidated tags %s", j,
				briefTags(tags)), func() bool {
				return len(in.tagsTold()) >= told
			})
			m := in.tagsTold()[told-1]
			if !slices.Equal(m.Tags, tags) || m.Generation != g {
				e.Errorf("the message is about tags %s of generation %d; want %s of %d",
					briefTags(m.Tags), m.Generation, briefTags(tags), g)
			}
		}
	}
}

// toldManyTags invalidates more tags than a store may want to put into one message.
func toldManyTags(e *env) {
	in := e.listen(e.b, e.cache)
	var tags []string
	for i := range 1000 {
		tags = append(tags, fmt.Sprint("tag ", i))
	}
	g := e.invalidateTags(e.a, tags...)
	told := func() map[string]int64 {
		all := map[string]int64{}
		for _, m := range in.tagsTold() {
			for _, tag := range m.Tags {
				all[tag] = m.Generation
			}
		}
		return all
	}
	e.eventually("all tags are told", func() bool { return len(told()) >= len(tags) })
	for _, m := range in.tagsTold() {
		if len(m.Tags) == 0 {
			e.Errorf("a message says that the whole cache is invalidated; only tags are")
		}
	}
	all := told()
	for some := range slices.Chunk(tags, frame.MaxTags) {
		for i, of := range e.generations(e.a, some...)[1:] {
			if said := all[some[i]]; said != of || said > g {
				e.Fatalf("the message about tag %q says generation %d; want %d, and at most %d",
					some[i], said, of, g)
			}
		}
	}
}

func toldOthersTags(e *env) {
	like := e.likeCaches()
	var ins []*inbox
	for _, cache := range like {
		ins = append(ins, e.listen(e.b, cache))
	}
	own := e.listen(e.b, e.cache)
	e.invalidateTags(e.a, "t", "u")
	e.invalidateTags(e.a)
	e.eventually("the cache's own listener is told", func() bool {
		return len(own.tagsTold()) >= 2
	})
	for i, in := range ins {
		in.until(e.a, cacheguard.Key{Cache: like[i], Key: "k"})
		if told := in.tagsTold(); len(told) > 0 {
			e.Errorf("a listener to cache %q was told of tags %q of cache %q", like[i],
				told[0].Tags, e.cache)
		}
	}
}

// listenSince has three listeners. The first one begins before messages arrive, and the other two
// later. If the fleet can lose messages, the last listener then may miss some. A process may take
// its data for valid only if it gets messages about all later invalidations.
func listenSince(e *env) {
	since := func(in *inbox, after int) (generation int64) {
		e.eventually("the listener is told that messages arrive", func() bool {
			all := in.messages()
			i := slices.IndexFunc(all[after:], func(m cacheguard.Message) bool {
				return m.Kind == cacheguard.MessageRestored
			})
			if i >= 0 {
				generation = all[after+i].Generation
			}
			return i >= 0
		})
		return generation
	}
	var in *inbox
	for range 3 {
		g := max(e.invalidateTags(e.a, "t"), e.invalidateTags(e.a))
		in = e.listen(e.b, e.cache)
		if from := since(in, 0); from < g {
			e.Errorf("a new listener is told that it may have missed generations up to %d; it missed %d",
				from, g)
		}
	}
	if e.fleet.LoseMessages == nil {
		return
	}
	g := e.invalidateTags(e.a, "t")
	e.eventually("the invalidation is told", func() bool { return len(in.tagsTold()) > 0 })
	before := len(in.messages())
	e.fleet.LoseMessages()
	if from := since(in, before); from < g {
		e.Errorf("after a break a listener is told that it may have missed generations up to %d; want at least %d",
			from, g)
	}
}
