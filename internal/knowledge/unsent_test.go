package knowledge

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

func gone(t *testing.T, u *Unsent, key string, of frame.Tags, stamp int64) bool {
	t.Helper()
	gone, mark := u.Has(0, key, of, stamp)
	if !mark.IsZero() {
		t.Errorf("%s is marked", key)
	}
	return gone
}

// firstLetter is the first one.
func firstLetter(u *Unsent, most int) (l Letter) {
	if all := u.Letters(most); len(all) > 0 {
		l = all[0]
	}
	return l
}

// A change that the store could not be told of invalidates older values in this process. It still
// does so after the store was told, until the change is forgotten.
func TestUnsent(t *testing.T) {
	var u Unsent
	a, b := tags(t, "a"), tags(t, "b")
	if gone(t, &u, "k", a, 1) || u.Count() != 0 {
		t.Error("there is something in an empty one")
	}
	u.AddTags([]string{"a"}, 10)
	if !gone(t, &u, "k", a, 10) || gone(t, &u, "k", a, 11) || gone(t, &u, "k", b, 1) ||
		gone(t, &u, "k", nil, 1) {
		t.Error("a tag's counts not as it should")
	}
	u.AddKeys([]string{"k"}, 15, time.Time{})
	if !gone(t, &u, "k", nil, 15) || gone(t, &u, "k", nil, 16) || gone(t, &u, "other", nil, 1) {
		t.Error("a key's counts not as it should")
	}
	u.AddTags(nil, 20)
	if !gone(t, &u, "x", nil, 20) || !gone(t, &u, "x", b, 20) || gone(t, &u, "k", a, 21) {
		t.Error("that of the whole cache counts not as it should")
	}
	if l := firstLetter(&u, 8); !l.Whole || u.Count() != 3 {
		t.Errorf("%+v of %d", l, u.Count())
	}
	last := u.Last()
	u.AddKeys([]string{"k"}, 30, time.Time{})
	if sent := u.SentTags(nil, last).All; sent != 2 || u.Count() != 1 {
		t.Errorf("%d sent, %d left; want 2 and the newer one", sent, u.Count())
	}
	if l := firstLetter(&u, 8); l.Whole || len(l.Gone) != 1 || l.Gone[0] != "k" ||
		len(l.Stale)+len(l.Tags) != 0 {
		t.Errorf("%+v", l)
	}
	if sent := u.SentKeys([]string{"k", "other"}, u.Last(), false).All; sent != 1 ||
		u.Count() != 0 {
		t.Errorf("%d sent, %d left", sent, u.Count())
	}
	if !gone(t, &u, "k", nil, 30) || !gone(t, &u, "x", nil, 20) {
		t.Error("what was sent after the question doesn't count")
	}
	if gone, _ := u.Has(u.Now(), "k", nil, 30); gone {
		t.Error("what was sent before the question counts")
	}
	if u.Forget(last); !gone(t, &u, "k", nil, 30) || gone(t, &u, "x", nil, 20) {
		t.Error("it forgets something else")
	}
	if u.Forget(u.Last()); gone(t, &u, "k", nil, 1) || u.some.Load() {
		t.Error("it doesn't forget")
	}
}

// A key that was marked stale is there, but stale; an invalidation holds for both. The windows of
// those that are sent together begin with the first mark.
func TestUnsentMarks(t *testing.T) {
	var u Unsent
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	u.AddKeys([]string{"k", "both"}, 10, late)
	u.AddKeys([]string{"first"}, 10, early)
	if gone, mark := u.Has(0, "k", nil, 10); gone || !mark.Equal(late) {
		t.Errorf("gone: %v, marked at %v", gone, mark)
	}
	if gone, mark := u.Has(0, "k", nil, 11); gone || !mark.IsZero() {
		t.Errorf("gone: %v, marked at %v although it is newer", gone, mark)
	}
	u.AddKeys([]string{"both"}, 12, time.Time{})
	u.AddKeys([]string{"both"}, 14, late)
	if !gone(t, &u, "both", nil, 14) || u.Count() != 3 {
		t.Errorf("a mark takes an invalidation's place; %d", u.Count())
	}
	if l := firstLetter(&u, 8); len(l.Stale) != 2 || len(l.Gone) != 1 || !l.Mark.Equal(early) {
		t.Errorf("%+v", l)
	}
	if sent := u.SentKeys([]string{"both", "k"}, u.Last(), true).All; sent != 1 || u.Count() != 2 {
		t.Errorf("%d sent: that one was marked says nothing of its invalidation", sent)
	}
	soft := tags(t, "\x00soft", "hard")
	u.AddTags([]string{"\x00soft"}, 20_000_000)
	if gone, mark := u.Has(0, "x", soft, 20_000_000); gone || !mark.Equal(time.Unix(20, 0)) {
		t.Errorf("gone: %v, marked at %v by a soft tag", gone, mark)
	}
	if u.AddTags([]string{"hard"}, 20_000_000); !func() bool {
		gone, _ := u.Has(0, "x", soft, 20_000_000)
		return gone
	}() {
		t.Error("a hard tag counts as a soft one")
	}
}

// Too many are one of the whole cache, and that covers all of them.
func TestUnsentBound(t *testing.T) {
	var u Unsent
	for i := range maxUnsent {
		u.AddKeys([]string{strconv.Itoa(i)}, int64(i), time.Time{})
	}
	if firstLetter(&u, 1).Whole || u.Count() != maxUnsent {
		t.Fatalf("%d of at most %d are too many", u.Count(), maxUnsent)
	}
	u.AddKeys([]string{"0", "one more"}, maxUnsent, time.Time{})
	if l := firstLetter(&u, 8); !l.Whole || u.Count() != 1 || !gone(t, &u, "1", nil, maxUnsent) ||
		gone(t, &u, "1", nil, maxUnsent+1) {
		t.Errorf("%+v, %d left", l, u.Count())
	}
	if sent := u.SentTags(nil, u.Last()).All; sent != 1 || u.Count() != 0 {
		t.Errorf("%d sent, %d left", sent, u.Count())
	}
}

// For random changes in random order, each change is in a letter until it was sent, and in none
// afterwards.
func TestUnsentLetters(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var u Unsent
	left := map[string]bool{} // what is to be sent
	for range 20_000 {
		name := strconv.Itoa(r.IntN(40))
		switch r.IntN(5) {
		case 0:
			u.AddKeys([]string{name}, 1, time.Time{})
			left["key "+name] = true
		case 1:
			u.AddTags([]string{name}, 1)
			left["tag "+name] = true
		case 2:
			l := firstLetter(&u, 1+r.IntN(10))
			again := r.IntN(3) == 0 && len(l.Gone) > 0
			if again { // it is changed once more while it is on its way
				u.AddKeys(l.Gone[:1], 1, time.Time{})
			}
			u.SentKeys(l.Gone, l.Through, false)
			for i, key := range l.Gone {
				if !again || i > 0 {
					delete(left, "key "+key)
				}
			}
		case 3:
			l := firstLetter(&u, 1+r.IntN(10))
			u.SentTags(append(l.Tags, "never known"), l.Through)
			for _, tag := range l.Tags {
				delete(left, "tag "+tag)
			}
		case 4:
			u.Forget(u.Last())
		}
		if u.Count() != len(left) {
			t.Fatalf("%d are left, want %d", u.Count(), len(left))
		}
	}
	l := firstLetter(&u, 1000)
	if len(l.Gone)+len(l.Tags) != len(left) {
		t.Errorf("%d in the last letter, want %d", len(l.Gone)+len(l.Tags), len(left))
	}
}

// What the store was told is repeated whenever messages arrive again, if it is not older than that.
// Where there is no room the oldest is forgotten, and counted; what is changed once more takes no
// more room.
func TestLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lately
		l.Keys([]string{"old"}, 1, time.Time{}, false)
		time.Sleep(time.Minute)
		since := time.Now()
		l.Keys([]string{"a", "b", "never told"}, 2, time.Time{}, false)
		l.Keys([]string{"marked"}, 2, time.Unix(1, 0), false)
		l.Tags([]string{"tag"}, 2, false)
		var u Unsent
		u.AddKeys([]string{"never told"}, 1, time.Time{})
		if more := l.Again(since, &u); more != 0 || u.Count() != 5 {
			t.Errorf("%d again and %d more, want 5", u.Count(), more)
		}
		letter := firstLetter(&u, 8)
		if len(letter.Gone) != 1 || len(letter.AgainKeys) != 3 || len(letter.AgainTags) != 1 ||
			letter.AgainTags[0] != (Told{Name: "tag", Generation: 2}) {
			t.Errorf("%+v", letter)
		}
		if !gone(t, &u, "never told", nil, 2) || !gone(t, &u, "a", nil, 2) {
			t.Error("what is from before it is used")
		}
		u = Unsent{}
		l.Tags(nil, 3, false)
		l.Keys([]string{"marked"}, 3, time.Time{}, false)
		l.Keys([]string{"a"}, 3, time.Unix(2, 0), false)
		if l.Again(since, &u); firstLetter(&u, 8).Whole || len(firstLetter(&u, 8).AgainTags) != 2 ||
			len(firstLetter(&u, 8).AgainKeys) != 4 ||
			!gone(t, &u, "marked", nil, 3) || !gone(t, &u, "a", nil, 3) {
			t.Errorf("%+v", firstLetter(&u, 8))
		}
		for i := range maxTold + 10 {
			l.Keys([]string{strconv.Itoa(i), "often"}, 4, time.Time{}, false)
		}
		u = Unsent{}
		if more := l.Again(since, &u); more != 6+11 || u.Count() != maxTold ||
			gone(t, &u, "10", nil, 4) || !gone(t, &u, "11", nil, 4) {
			t.Errorf("%d of %d, and %d more", u.Count(), maxTold, more)
		}
		time.Sleep(time.Minute)
		if more := l.Again(time.Now(), &Unsent{}); more != 0 {
			t.Errorf("%d of long ago are missing", more)
		}
	})
}

// A change of long ago doesn't matter when later marks are repeated: an invalidation doesn't make
// them invalidations, and an earlier mark doesn't shorten the stale windows.
func TestLatelyOfAMarkAfterAChange(t *testing.T) {
	first, second := time.Unix(61, 0), time.Unix(62, 0)
	for name, c := range map[string]struct{ old, lately, all time.Time }{
		"an invalidation": {lately: first},
		"a mark":          {old: time.Unix(1, 0), lately: second, all: time.Unix(1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l Lately
				l.Keys([]string{"k"}, 1, c.old, false)
				before := time.Now()
				time.Sleep(time.Minute)
				since := time.Now()
				l.Keys([]string{"k"}, 2, second, false)
				l.Keys([]string{"k"}, 3, first, false)
				for then, mark := range map[time.Time]time.Time{since: c.lately, before: c.all} {
					var u Unsent
					l.Again(then, &u)
					want := Told{Name: "k", Generation: 3, Mark: mark}
					if keys := firstLetter(&u, 8).AgainKeys; len(keys) != 1 || keys[0] != want {
						t.Errorf("again: %+v; want %+v", keys, want)
					}
				}
			})
		})
	}
}

// Changes are kept in the order of their times, also if one has waited for the lock.
func TestLatelyOfACallThatWaited(t *testing.T) {
	var l Lately
	l.mu.Lock()
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(begun)
		l.Keys([]string{"k"}, 1, time.Time{}, false)
	}()
	<-begun
	<-time.After(20 * time.Millisecond) // Keys waits by now; otherwise nothing is tested
	since := time.Now()
	l.mu.Unlock()
	<-done
	var u Unsent
	if l.Again(since, &u); u.Count() != 1 {
		t.Errorf("%d changes again, want 1", u.Count())
	}
}

// An answer from before an invalidation was sent may arrive after it, also when the key is marked
// stale by then.
func TestUnsentMarkAfterAnInvalidation(t *testing.T) {
	var u Unsent
	u.AddKeys([]string{"k"}, 10, time.Time{})
	asked := u.Now()
	u.SentKeys([]string{"k"}, u.Last(), false)
	u.AddKeys([]string{"k"}, 20, time.Unix(1, 0))
	if gone, _ := u.Has(asked, "k", nil, 10); !gone {
		t.Error("it is marked, and not gone")
	}
}
