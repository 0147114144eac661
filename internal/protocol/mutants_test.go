package protocol

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// A mutant breaks one rule in one place, and one check of the explorer must find it. The file is
// the machine or the slot. For rules that the driver must follow, it is a file of the explorer's
// driver.
type mutant struct {
	rule     string // the number of the rule in doc.go, and in short what goes wrong
	file     string
	old, new string // old is in the file once, and new replaces it
	scene    string
	check    string
}

const (
	machine = "miss.go"
	atStore = "slot.go"
	driver  = "explore_driver_test.go"
	writes  = "explore_writer_test.go"
)

var mutants = []mutant{
	{
		"1: a fill counts by its token alone", atStore,
		"s.Lease.Token == token && s.Lease.Number == number",
		"s.Lease.Token == token",
		"late copies", "lateFill",
	},
	{
		"1: a copy of a question gets a new number", atStore,
		"	if mine {\n",
		"	if mine {\n		s.Lease.Number = q.Number\n",
		"late copies", "believesTooLong",
	},
	{
		"1: a copy of a question is told to wait", atStore,
		"	if mine {\n",
		"	if false {\n",
		"late copies", "waitsForItself",
	},
	{
		"1: a copy of a fill is refused", atStore, "			k = Stored\n", "", "late copies",
		"storedButRefused",
	},
	{
		"1: a fill that is refused counts as stored", atStore,
		"		if LoadOf(s.Frame) == string(token[:]) {",
		"		if true {",
		"late copies", "refusedButStored",
	},
	{
		"1: a fill is refused beside an old value", atStore,
		"	s.Frame, s.Until = frame, After(now, ttl)\n",
		"	if s.Frame != \"\" {\n		return Gone, s.endLease(TellsReleased)\n	}\n	s.Frame, s.Until = frame, After(now, ttl)\n",
		"refreshes", "refusedUndisturbed",
	},
	{
		"1: a load without the lease is stored", machine,
		"	case Returned, Unstorable:\n		return m.land(0, LandOwn)",
		"	case Returned, Unstorable:\n		m.State = Settling\n		return Fill, 0",
		"lost replies", "fillsWithoutLease",
	},

	{
		"2: a miss forgets whose load it was told to wait for", machine,
		"m.State, m.Awaited = Following, e.Load",
		"m.State = Following",
		"fails, no back-off", "secondLoadForWaiter",
	},
	{
		"2: a record answers everybody", atStore,
		"(now < r.Backoff || r.Load == q.Awaited)",
		"true",
		"fails, no back-off", "errorFromBefore",
	},
	{
		"2: a message of any load counts", driver,
		" || m.load != f.m.Awaited[0]:",
		":",
		"fails, told twice", "anothersOutcome",
	},

	{
		"3: a failure leaves no record", atStore,
		"	if keep > 0 {",
		"	if keep < 0 {",
		"fails, no back-off", "secondLoadForWaiter",
	},
	{
		"3: a failure leaves a record although the lease is gone", atStore,
		"	if s.holding(token, number) != Renewed {\n		return TellsNothing",
		"	if s.holding(token, number) == Taken {\n		return TellsNothing",
		"fails", "errorAfterRepair",
	},
	{
		"3: an invalidation leaves the record", atStore,
		"	*s = Slot{}",
		"	*s = Slot{Record: s.Record}",
		"fails", "errorAfterRepair",
	},
	{
		"3: a lease leaves the record", atStore,
		"	s.Record = Record{}\n	s.leaseUntil(",
		"	s.leaseUntil(",
		"fails, no back-off", "leaseAndRecord",
	},
	{
		"3: what is for one caller has the others take turns", machine,
		"	case Damaged, Unshared:",
		"	case Damaged:",
		"unshared", "waitsForOthers",
	},
	{
		"3: who loads for one caller waits for another load", machine,
		"		case m.Solo:\n			return m.withoutLease(do)\n		case m.Behind:",
		"		case m.Behind:",
		"unshared, remembered", "waitsForOthers",
	},
	{
		"3: who was told to load apart asks for the lease", machine, "	case m.Apart:",
		"	case false:", "unshared", "asksApart",
	},

	{
		"4: a lease that is gone does not seal", machine,
		"	case Gone: // invalidated, evicted or expired; the load goes on for the callers that wait for it\n		return m.lose(), 0",
		"	case Gone:\n		return 0, 0",
		"renewed and changed", "joinsOld",
	},
	{
		"4: a load goes on beside the one that has its lease", machine,
		"		return m.again(m.lose() | CancelLoad)",
		"		return m.lose(), 0",
		"renewed and changed", "loadsBesideHolder",
	},
	{
		"4: callers see that the lease is lost", machine,
		"		return m.again(m.lose() | CancelLoad)",
		"		return m.land(m.lose()|CancelLoad, LandOwnError)",
		"renewed and changed", "lostToCaller",
	},
	{
		"4: restarts have no end", machine, "m.Restarts > MaxRestarts:", "false:", "restarts",
		"restartedTooOften",
	},
	{
		"4: what was loaded under a lost lease is stored", atStore,
		"	case s.Lease.Until == 0:\n		return Gone",
		"	case s.Lease.Until == 0:\n		return Renewed",
		"invalidate", "lateFill",
	},

	{
		"5: a load that was given up counts as failed", machine,
		"return m.land(CancelLoad|Release, LandEnded)",
		"return m.land(CancelLoad|Conclude, LandEnded)",
		"leaves", "errorWithoutFailure",
	},
	{
		"5: a load that was given up keeps the lease", machine,
		"return m.land(CancelLoad|Release, LandEnded)",
		"return m.land(CancelLoad, LandEnded)",
		"leaves", "leaseLeftBehind",
	},
	{
		"5: a grant that nobody waits for begins a load", machine,
		"	case m.Ended:\n		return m.land(m.endTurn()|Release, LandEnded)\n	case e.Now",
		"	case e.Now",
		"leaves", "loadsForNobody",
	},
	{
		"5: who gives up goes on loading", machine,
		"		return m.land(CancelLoad|Release, LandEnded)\n	case Alone:\n		return m.land(CancelLoad, LandEnded)",
		"		return m.land(Release, LandEnded)\n	case Alone:\n		return m.land(CancelLoad, LandEnded)",
		"leaves", "loadLeftBehind",
	},
	{
		"5: who gives up cancels what it waits for", machine,
		"	case Begun, Queued, Following, Spared, Leaving:\n		return m.land(m.endTurn(), LandEnded)",
		"	case Begun, Queued, Following, Spared, Leaving:\n		return m.land(m.endTurn()|CancelLoad, LandEnded)",
		"leaves", "cancelsNothing",
	},

	{
		"5: a release ends anybody's lease", atStore,
		"	if s.Lease.Until == 0 || s.Lease.Token != token {\n		return TellsNothing",
		"	if s.Lease.Until == 0 {\n		return TellsNothing",
		"dies late", "releasesAnothers",
	},
	{
		"5: who joins what everybody has left gets nothing", "explore_steps_test.go",
		"f.members == 0 {\n			r.seal(p, i)\n",
		"f.members == 0 {\n",
		"leaves", "abandonedToCaller",
	},
	{
		"5: the first to leave ends it for all", "explore_steps_test.go",
		"if f.members--; f.members == 0 {",
		"if f.members--; f.members >= 0 {",
		"leaves", "abandonedToCaller",
	},

	{
		"6: an invalidation seals afterwards only if the store succeeded", writes,
		"	r.procs[0].open[0] = 0\n	r.changed",
		"	if answered {\n		r.procs[0].open[0] = 0\n	}\n	r.changed",
		"joins", "joinsOld",
	},
	{
		"6: messages that arrive again seal nothing", driver,
		"	pr.cut, pr.open = false, [maxKeys]uint8{}",
		"	pr.cut = false",
		"cut", "olderThanTold",
	},
	{
		"6: a message of a change seals nothing", driver, "		pr.open[m.key] = 0\n", "",
		"invalidate", "olderThanTold",
	},
	{
		"6: an invalidation leaves the lease", atStore,
		"	*s = Slot{}",
		"	*s = Slot{Lease: s.Lease}",
		"invalidate", "olderThanChange",
	},
	{
		"6: an invalidation leaves the value", atStore,
		"	*s = Slot{}",
		"	*s = Slot{Frame: s.Frame, Until: s.Until}",
		"invalidate", "olderThanChange",
	},

	{
		"7: a mark leaves the lease", atStore,
		"	s.Lease, s.Record, s.Waiters = Lease{}, Record{}, Waiters{}\n	return TellsChanged",
		"	return TellsChanged",
		"marks", "olderThanChange",
	},
	{
		"7: a mark marks nothing", atStore, "		s.Frame = f[:at] + mark + f[end:]\n", "",
		"marks", "olderThanChange",
	},
	{
		"7: what nobody waits for waits", machine,
		"		case m.Behind:\n			return m.letGo(do)\n		default:",
		"		default:",
		"refreshes", "waitsForNobody",
	},

	{
		"8: a claim leaves the value", atStore,
		"		s.dropFrame()\n	}\n	if s.Lease.Until == 0 ||",
		"	}\n	if s.Lease.Until == 0 ||",
		"invalidate", "olderThanTold",
	},
	{
		"8: a claim leaves the lease to who has it", atStore,
		"	if s.Lease.Until == 0 || s.Lease.Token != token {\n		s.grant",
		"	if s.Lease.Until == 0 {\n		s.grant",
		"invalidate", "olderThanChange",
	},
	{
		"8: a write that is not stored invalidates nothing", driver,
		"	case was.m.Claims && was.stored:",
		"	case was.m.Claims:",
		"two updates", "olderThanChange",
	},
	{
		"8: a write that is stored leaves flights open", driver,
		"the write.\n		r.procs[p].open[0] = 0\n",
		"the write.\n",
		"updates, lost replies", "olderThanTold",
	},
	{
		"8: a write is cancelled when its lease is lost", machine,
		"		if m.Claims { // a write isn't cancelled",
		"		if false { // a write isn't cancelled",
		"updates, renewed", "cancelsWrite",
	},
	{
		"8: a write that has failed leaves a record", machine,
		"		if m.Claims { // the writer",
		"		if false { // the writer",
		"updates fail", "tellsOfWrite",
	},

	{
		"11: lease time counts from the answer", machine,
		"	m.Until = e.Sent + m.LeaseTTL // counted",
		"	m.Until = e.Now + m.LeaseTTL // counted",
		"stands still", "believesTooLong",
	},
	{
		"11: after a renewal the lease counts for twice its time", machine,
		"	case Renewed:\n		m.Until = e.Sent + m.LeaseTTL",
		"	case Renewed:\n		m.Until += m.LeaseTTL",
		"renews", "believesTooLong",
	},
	{
		"11: a grant that came too late counts", machine,
		"	case e.Now-e.Sent >= m.LeaseTTL:",
		"	case false:",
		"stands still", "loadWithoutLease",
	},
	{
		"11: a lease of which nobody knows is believed in for ever", machine,
		"		if e.Sent >= m.Until { // the lease",
		"		if false { // the lease",
		"renews twice", "joinsOld",
	},

	{
		"12: a lease is granted beside another", atStore,
		"	if s.Lease.Until > 0 {\n		if q.Inbox",
		"	if false {\n		if q.Inbox",
		"quiet", "secondLoad",
	},
	{
		"12: a lease is granted beside a value", atStore,
		"id != \"\" && id != q.Seen && !mine",
		"id == \"none\"",
		"quiet", "secondLoad",
	},
	{
		"12: a fill is told to nobody", atStore,
		"	return Stored, s.endLease(TellsFilled)",
		"	s.endLease(TellsFilled)\n	return Stored, TellsNothing",
		"quiet", "notPushed",
	},
	{
		"12: a fill is told to the last who waits alone", atStore,
		"s.Waiters.Inboxes |= q.Inbox",
		"s.Waiters.Inboxes = q.Inbox",
		"quiet", "notPushed",
	},
	{
		"12: a load that ends is told to nobody who waits", atStore,
		"	if s.Waiters.Inboxes == 0 {\n		tells",
		"	if true {\n		tells",
		"quiet", "notPushed",
	},
	{
		"12: messages are waited for from the answer on only", driver,
		"		case f.m.State == Asking && f.box == message{}:",
		"		case false:",
		"quiet", "notPushed",
	},
	{
		"12: a renewal begins another load", machine,
		"	case Renewed:\n		m.Until = e.Sent + m.LeaseTTL\n",
		"	case Renewed:\n		m.Until = e.Sent + m.LeaseTTL\n		return Load, 0\n",
		"renewed and changed", "twoLoadsOfOne",
	},
	{
		"13: a miss follows with its slot in hand", machine,
		"		switch do := m.endTurn(); {",
		"		switch do := Do(0); {",
		"quiet slots", "turnKept",
	},
	{
		"13: a grant that nobody waits for keeps its slot", machine,
		"		return m.land(m.endTurn()|Release, LandEnded)",
		"		return m.land(Release, LandEnded)",
		"leaves", "turnLost",
	},
	{
		"13: a question in the place of a look-up keeps its slot beside a value", machine,
		"		m.State = Begun\n		return m.endTurn(), 0",
		"		m.State = Begun\n		return 0, 0",
		"unseen", "turnKept",
	},
	{
		"13: a question in the place of a look-up has no slot", machine,
		"		m.Turn, m.State = true, Asking\n",
		"		m.State = Asking\n",
		"unseen", "turnLost",
	},
	{
		"13: who is refused a slot waits on", machine,
		"		return do, 0\n	case Refused:\n		return m.land(0, LandRefused)",
		"		return do, 0\n	case Refused:\n		return 0, 0",
		"refused", "waitsForEver",
	},
	{
		"13: who is refused a slot of its own waits on", machine,
		"	case Refused: // another load has taken the slot\n		return m.land(0, LandRefused)",
		"	case Refused: // another load has taken the slot\n		return 0, 0",
		"batch, half answered", "waitsForEver",
	},
	{
		"16: who waits relies on messages alone", "explore_steps_test.go",
		"		if w.now >= f.timer || pr.cut {",
		"		if false {",
		"messages", "waitsForEver",
	},
	{
		"16: who has waited for too long asks again", machine,
		"		return m.land(0, LandOverdue)",
		"		return m.again(0)",
		"overdue", "waitsTooLong",
	},

	{
		"17: in shadow callers get what is there", machine,
		"		case Held, Value, Outcome:", "		case Held, Outcome:",
		"shadow", "answeredByCache",
	},
	{
		"17: in shadow callers wait for another process", machine,
		"		case Held, Value, Outcome:", "		case Value, Outcome:",
		"shadow", "answeredByCache",
	},
	{
		"17: in shadow callers get another process' error", machine,
		"		case Held, Value, Outcome:", "		case Held, Value:",
		"shadow, and fails", "answeredByCache",
	},
	{
		"17: in shadow callers miss the store", machine,
		"		case Unanswered:\n			return m.withoutLease(ReleaseLater)\n", "",
		"shadow", "answeredByCache",
	},
}

var failsBy = regexp.MustCompile(`fails by "(\w+)"`)

// testWithoutRace explores scenes in a go test of their own, without the race detector.
func testWithoutRace(t *testing.T, scenes []string, flags ...string) ([]byte, error) {
	for i, name := range scenes {
		scenes[i] = regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_"))
	}
	run := "^TestExplore$/^(" + strings.Join(scenes, "|") + ")$"
	args := append([]string{"test", "-count=1", "-vet=off", "-timeout=20m", "-run", run}, flags...)
	return exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput()
}

// overlay writes an overlay file with which go test builds the mutant, and returns the file's name.
// The build leaves out the files in without.
func (m mutant) overlay(t *testing.T, without ...string) string {
	t.Helper()
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s has %q %d times, want once", m.file, m.old, n)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replaced := map[string]string{filepath.Join(here, m.file): changed}
	for _, file := range without {
		replaced[filepath.Join(here, file)] = ""
	}
	files, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		changed: strings.Replace(string(text), m.old, m.new, 1), overlay: string(files),
	} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// OverlayOf returns the overlay of the mutant with this rule.
func OverlayOf(t *testing.T, rule string) string {
	t.Helper()
	for _, m := range mutants {
		if m.rule == rule {
			return m.overlay(t)
		}
	}
	t.Fatalf("there is no mutant %q", rule)
	return ""
}

// TestMutants builds each mutant and lets the explorer find it. A check that no mutant fails would
// prove nothing.
func TestMutants(t *testing.T) {
	if !childproc.Full() {
		t.Skip("skipped unless CACHEGUARD_TEST is full: each mutant is compiled")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("skipped: %v", err)
	}
	for _, m := range mutants {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			// The explorer doesn't need the whole cache, which audit_test.go imports.
			const loader = "audit_test.go"
			// A mutant is found soon, so optimizing the build would take longer than it saves.
			out, err := testWithoutRace(t, []string{m.scene}, "-overlay", m.overlay(t, loader),
				"-gcflags=-N -l -dwarf=false", "-ldflags=-s -w")
			got := failsBy.FindSubmatch(out)
			switch {
			case err == nil:
				t.Errorf("holds, but must fail by %q", m.check)
			case got == nil:
				t.Errorf("no result:\n%s", out)
			case string(got[1]) != m.check:
				t.Errorf("fails by %q, but must fail by %q\n%s", got[1], m.check, out)
			}
		})
	}
}

// TestDocHasRules checks that each rule in doc.go names the checks of its mutants, and no others.
// It also checks that each check of the explorer has a mutant. The checks of the explorer's own
// bounds, which begin with tooMany, need none.
func TestDocHasRules(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]bool{}
	rules := map[string]map[string]bool{}
	for _, m := range mutants {
		number, _, _ := strings.Cut(m.rule, ":")
		if rules[number] == nil {
			rules[number] = map[string]bool{}
		}
		rules[number][m.check], checks[m.check] = true, true
	}
	words := regexp.MustCompile(`\w+`)
	for _, rule := range regexp.MustCompile(`(?m)^//  (\d+)\. ((?s:.*?))Checks?:\s((?s:.*?))\.$`).
		FindAllStringSubmatch(string(text), -1) {
		want := rules[rule[1]]
		for _, check := range words.FindAllString(rule[3], -1) {
			if !want[check] {
				t.Errorf("rule %s has %s, and no mutant of it fails by that", rule[1], check)
			}
			delete(want, check)
		}
	}
	for number, left := range rules {
		for check := range left {
			t.Errorf("rule %s of doc.go doesn't have %s", number, check)
		}
	}
	files, err := filepath.Glob("explore_*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, check := range regexp.MustCompile(`fail\("(\w+)"\)`).
			FindAllStringSubmatch(string(text), -1) {
			if !checks[check[1]] && !strings.HasPrefix(check[1], "tooMany") {
				t.Errorf("no mutant fails by %s of %s", check[1], file)
			}
		}
	}
}
