package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cacheguard/cacheguard/internal/browsertest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// ran waits until every run of the page is over.
var ran = browsertest.Over(
	`document.querySelectorAll('.verdict').length > 0 && [...document.querySelectorAll('.verdict')].every(v => /good|bad/.test(v.className))`)

// shows does what begins a run until its verdict has the words and lacks returns "". On a busy
// machine a run may take another course than its fault mostly leads to.
func shows(
	t *testing.T, b *browsertest.Browser, words string, lacks func() string,
	run ...chromedp.Action,
) {
	t.Helper()
	var seen []string
	for range tries {
		b.Do(t, append(run, ran)...)
		verdict := browsertest.Eval[string](t, b, `document.querySelector('.verdict').textContent`)
		lack := lacks()
		if strings.Contains(verdict, words) && lack == "" {
			return
		}
		seen = append(seen, verdict+" "+lack)
	}
	t.Errorf("it shows %q, want %q in one of them", seen, words)
}

// Each stage is run through its link, on a wide screen and on a phone, with the fault that shows
// its flaw.
func TestPageInABrowser(t *testing.T) {
	b := browsertest.Open(t)
	c := start(t, 1)
	for stage, run := range map[string]struct{ fault, verdict, mark string }{
		"none":       {"none", "loads", "filled"},
		"leaky":      {"unknown", "12 loads", "answered"},
		"local":      {"none", "3 loads", "filled"},
		"setnx":      {"crash", "dead lock", "crash"},
		"expire":     {"crash-between", "dead lock", "crash"},
		"setnxex":    {"slow-unlock", "the lock of another request was deleted", "wrong delete"},
		"owner":      {"slow-unlock", "the lock of another request was deleted", "wrong delete"},
		"compare":    {"slow-load", "stale value", "stale write"},
		"watchdog":   {"stall", "stale value", "stale write"},
		"cacheguard": {"stall", "loads", "announced"},
		"getset":     {"clock", "at once", "acquired"},
		"force":      {"clock", "at once", "acquired"},
		"forever":    {"silent-rename", "stale value", "filled"},
		"watch":      {"none", "1 load", "unlocked"},
		"luasetnx":   {"slow-unlock", "the lock of another request was deleted", "wrong delete"},
		"sqlrow":     {"crash", "dead lock", "crash"},
		"redlock":    {"failover", "had the lock at once", "lost vote"},
	} {
		for _, width := range []int64{1440, 375} {
			if width == 375 && run.fault != "none" && stage != "compare" { // runs take time
				continue
			}
			t.Run(fmt.Sprint(stage, " ", width), func(t *testing.T) {
				b.Do(t, chromedp.EmulateViewport(width, 900))
				ttl := "1s"
				if stage == "redlock" || stage == "cacheguard" { // each step has only a part of it
					ttl = "10s"
				}
				shows(t, b, run.verdict, func() string {
					look := browsertest.Eval[string](t, b,
						`document.querySelector('.verdict').className`)
					// A stall may end in two ways.
					if good := stage == "watch"; stage != "cacheguard" &&
						good != (look == "verdict good") {
						return fmt.Sprintf("(it looks %q)", look)
					}
					if run.mark != "answered" && browsertest.Eval[int](t, b,
						`document.querySelectorAll('.timeline [data-kind="`+run.mark+
							`"]').length`) == 0 {
						return fmt.Sprintf("(no %q is drawn)", run.mark)
					}
					return ""
				}, chromedp.Navigate(c.urls[0]+"/?stage="+stage+"&fault="+run.fault+
					"&replicas=3&requests=12&load=100ms&ttl="+ttl))
				if n := browsertest.Eval[int](t, b,
					`document.querySelectorAll('.timeline g.lane').length`); n != 3 {
					t.Errorf("%d lanes, want 3", n)
				}
				if n := browsertest.Eval[int](t, b,
					`document.querySelectorAll('.timeline rect.request').length`); n != 12 {
					t.Errorf("%d requests are drawn, want 12", n)
				}
				if over := browsertest.Eval[int](t, b,
					`document.documentElement.scrollWidth - innerWidth`); over > 0 {
					t.Errorf("the page is %d pixels wider than the screen", over)
				}
				b.Shoot(t, fmt.Sprint(stage, "-", width))
			})
		}
	}
	for _, p := range b.Said() {
		t.Error(p)
	}
}

// If waiting requests form a line, the page shows the number of their wake-ups.
func TestPageCountsWakeUps(t *testing.T) {
	b := browsertest.Open(t)
	c := start(t, 1, "-zookeeper", zktest.Shared(t).Addr())
	number := func(name string) []int {
		return browsertest.Eval[[]int](t, b,
			`[...document.querySelectorAll('dd[data-name="`+name+`"]')].map(d => +d.textContent)`)
	}
	b.Do(t, chromedp.EmulateViewport(1440, 900),
		chromedp.Navigate(c.urls[0]+
			"/?stage=herd&versus=predecessor&replicas=3&requests=24&ttl=30s"), ran)
	waited, woken := number("waited for a lock"), number("wake-ups")
	if len(waited) != 2 || len(woken) != 2 {
		t.Fatalf("%v waited, %v wake-ups", waited, woken)
	}
	if waited[0] != 23 || woken[0] <= 2*waited[0] || waited[1] != 23 || woken[1] > waited[1] {
		t.Errorf("with the herd and without it %v waited and were woken %v times", waited, woken)
	}
	verdicts := browsertest.Eval[[]string](t, b,
		`[...document.querySelectorAll('.verdict')].map(v => v.className + ': ' + v.textContent)`)
	if len(verdicts) != 2 || !strings.Contains(verdicts[0], "bad: ") ||
		!strings.Contains(verdicts[0], "grow with the square") ||
		!strings.Contains(verdicts[1], "good: 1 load; all requests got") {
		t.Errorf("the verdicts are %q", verdicts)
	}
	t.Logf("%v waited, %v wake-ups", waited, woken)
	b.Shoot(t, "herd-beside-predecessor")
}

// The page asks for the time by which the clock is ahead only if this matters, and the field can be
// reached with the keyboard.
func TestPageAsksForTheClock(t *testing.T) {
	b := browsertest.Open(t)
	c := start(t, 1)
	const clock = `document.querySelector('input[name=clock]')`
	visible := func() bool { return browsertest.Eval[bool](t, b, clock+`.checkVisibility()`) }
	enabled := func() bool { return browsertest.Eval[bool](t, b, `!`+clock+`.disabled`) }
	b.Do(t, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(c.urls[0]+"/"),
		chromedp.WaitReady(`#stage option[value=getset]`, chromedp.ByQuery),
		chromedp.SetValue(`#stage`, "getset", chromedp.ByQuery))
	if visible() || enabled() {
		t.Error("it is there with no fault")
	}
	// If keys come slowly, the browser takes them for the beginnings of several words.
	for n := 0; n < tries && !visible(); n++ {
		b.Do(t, chromedp.Focus(`#stage`, chromedp.ByQuery),
			chromedp.Focus(`#fault`, chromedp.ByQuery), chromedp.KeyEvent("the cl"))
	}
	b.Do(t, chromedp.KeyEvent("\t"))
	if at := browsertest.Eval[string](t, b, `document.activeElement.name`); at != "clock" ||
		!visible() || !enabled() {
		t.Fatalf("the keyboard comes to %q, shown: %t", at, visible())
	}
	if name := browsertest.Eval[string](t, b,
		clock+`.labels[0].textContent.trim()`); name != "It is ahead by" {
		t.Errorf("its name is %q", name)
	}
	const described = `document.getElementById(document.querySelector('#fault').getAttribute('aria-describedby'))`
	if said := browsertest.Eval[string](t, b,
		described+`.textContent`); said != "In this run the clock of replica 2 is wrong." {
		t.Errorf("the fault is explained as %q", said)
	}
	if value := browsertest.Eval[string](t, b, clock+`.value`); value != "1h" {
		t.Errorf("it says %q", value)
	}
	b.Do(t, chromedp.SetValue(`input[name=clock]`, "soon", chromedp.ByQuery),
		chromedp.KeyEvent("\r"))
	if browsertest.Eval[bool](t, b, clock+`.checkValidity()`) ||
		browsertest.Eval[string](t, b, `location.search`) != "" {
		t.Error("what is no time is taken")
	}
	for _, run := range []struct {
		clock, verdict string
	}{{"20s", "1 load; all"}, {"40s", "at once"}} {
		shows(t, b, run.verdict, func() string { return "" },
			chromedp.SetValue(`select[name=ttl]`, "30s", chromedp.ByQuery),
			// On a busy machine, replica 2 may come some time after the first load has begun.
			chromedp.SetValue(`select[name=load]`, "1s", chromedp.ByQuery),
			chromedp.SetValue(`input[name=clock]`, run.clock, chromedp.ByQuery),
			chromedp.Focus(`input[name=clock]`, chromedp.ByQuery), chromedp.KeyEvent("\r"))
		if link := browsertest.Eval[string](t, b, `location.href`); !strings.Contains(link,
			"fault=clock&clock="+run.clock) {
			t.Errorf("the run is at %s", link)
		}
	}
	b.Shoot(t, "clock")
	b.Do(t, chromedp.SetValue(`#fault`, "none", chromedp.ByQuery))
	if visible() || enabled() {
		t.Error("it stays when another fault is chosen")
	}
	for _, p := range b.Said() {
		t.Error(p)
	}
}

// A user chooses with the keyboard, runs two stages beside each other, and gets a link that repeats
// the run.
func TestPageIsUsed(t *testing.T) {
	b := browsertest.Open(t)
	c := start(t, 1)
	b.Do(t, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(c.urls[0]+"/"),
		chromedp.WaitReady(`#stage option[value=local]`, chromedp.ByQuery),
		chromedp.SetValue(`#stage`, "local", chromedp.ByQuery),
		chromedp.SetValue(`#versus`, "cacheguard", chromedp.ByQuery),
		// With a long lock each step of cacheguard may take long, too, as on a busy machine.
		chromedp.SetValue(`select[name=ttl]`, "30s", chromedp.ByQuery),
		chromedp.Focus(`input[name=requests]`, chromedp.ByQuery), chromedp.KeyEvent("\r"), ran)
	verdicts := browsertest.Eval[[]string](t, b,
		`[...document.querySelectorAll('.verdict')].map(v => v.textContent)`)
	if len(verdicts) != 2 || !strings.Contains(verdicts[0], "3 loads") ||
		!strings.Contains(verdicts[1], "1 load;") {
		t.Errorf("the verdicts are %q", verdicts)
	}
	link := browsertest.Eval[string](t, b, `location.href`)
	for _, want := range []string{"stage=local", "versus=cacheguard", "requests=12", "ttl=30s"} {
		if !strings.Contains(link, want) {
			t.Errorf("the link %s lacks %s", link, want)
		}
	}
	b.Do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(link), ran)
	if again := browsertest.Eval[[]string](t, b,
		`[...document.querySelectorAll('.panel .title')].map(v => v.textContent)`); len(again) !=
		2 {
		t.Errorf("the link shows %q", again)
	}
	// A screen reader can't read out an element without a name, and it must read out the results.
	nameless := browsertest.Eval[[]string](t, b,
		`[...document.querySelectorAll('select, input, button, svg[role=img]')]
		.filter(e => !(e.ariaLabel || e.labels?.length || e.textContent.trim()))
		.map(e => e.outerHTML.slice(0, 80))`)
	if len(nameless) > 0 {
		t.Errorf("without a name: %q", nameless)
	}
	if n := browsertest.Eval[int](t, b,
		`document.querySelectorAll('[role=status], [role=alert]').length`); n < 3 {
		t.Errorf("%d live regions", n)
	}
	for width, dark := range map[int64]bool{375: true, 1440: false} {
		b.Looks(t, width, dark)
		for _, found := range b.Inaccessible(t) {
			t.Errorf("at %d: %s", width, found)
		}
	}
	b.Shoot(t, "beside")
	for _, p := range b.Said() {
		t.Error(p)
	}
}

// The page opens with a run: no protection beside cacheguard, on one scale of time.
func TestPageOpensWithARun(t *testing.T) {
	b := browsertest.Open(t)
	c := start(t, 1)
	b.Do(t, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(c.urls[0]+"/"), ran)
	titles := browsertest.Eval[[]string](t, b,
		`[...document.querySelectorAll('.panel .title')].map(v => v.textContent)`)
	if len(titles) != 2 || !strings.Contains(titles[0], "no protection") ||
		!strings.Contains(titles[1], "cacheguard") {
		t.Errorf("it shows %q", titles)
	}
	for _, what := range []string{".timeline > text:last-of-type", ".waits > text:last-of-type"} {
		b.Do(t,
			browsertest.Over(`new Set([...document.querySelectorAll('`+what+
				`')].map(e => e.textContent)).size === 1`))
	}
	if at := browsertest.Eval[string](t, b, `location.search`); at != "" {
		t.Errorf("its address is %q", at)
	}
	for _, p := range b.Said() {
		t.Error(p)
	}
}

// The tour leads from no protection to cacheguard, by mouse or keyboard, on a wide screen and on a
// phone. Its steps show what their text says, and each step has its own URL. If the user changes a
// setting, the tour ends.
func TestTour(t *testing.T) {
	b := browsertest.Open(t)
	c := start(t, 1)
	b.Do(t, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(c.urls[0]+"/"),
		chromedp.WaitVisible("#tour-take", chromedp.ByQuery),
		browsertest.Over(`document.querySelectorAll('#stage option').length > 0`),
		chromedp.Click("#tour-take", chromedp.ByQuery))
	steps := []struct{ says, verdict string }{
		{"Nothing protects the map", "12 loads"},
		{"inside the process", "3 loads"},
		{"Its holder dies here", "dead lock"},
		{"deletes the lock of the next one", "the lock of another request was deleted"},
		{"takes longer than the lock lasts", "stale value"},
		{"stands still renews nothing", "stale value"},
		{"the late value is refused", "loads"},
		{"without Redis", "loads"},
	}
	for n, step := range steps {
		search := fmt.Sprint("?tour=", n+1)
		b.Do(t, browsertest.Over(`location.search === "`+search+`"`), ran)
		text := browsertest.Eval[string](t, b, `document.getElementById('tour-text').textContent`)
		seen := func() string {
			return browsertest.Eval[string](t, b, `document.querySelector('.verdict').textContent`)
		}
		verdict := seen()
		// On a busy machine a run may take another course. The first one can't.
		for try := 1; try < tries && n > 0 && !strings.Contains(verdict, step.verdict); try++ {
			b.Do(t, chromedp.Click("#tour-back", chromedp.ByQuery),
				browsertest.Over(`location.search === "`+fmt.Sprint("?tour=", n)+`"`), ran,
				chromedp.Focus("#tour-next", chromedp.ByQuery), chromedp.KeyEvent("\r"),
				browsertest.Over(`location.search === "`+search+`"`), ran)
			verdict = seen()
		}
		if !strings.HasPrefix(text, fmt.Sprintf("%d of %d: ", n+1, len(steps))) ||
			!strings.Contains(text, step.says) || !strings.Contains(verdict, step.verdict) {
			t.Errorf("step %d says %q, and what is to be seen is %q", n+1, text, verdict)
		}
		if n+1 < len(steps) { // the button has the focus
			b.Do(t, chromedp.KeyEvent("\r"))
		}
	}
	b.Shoot(t, "tour")
	leaves := func(how string) {
		t.Helper()
		if browsertest.Eval[bool](t, b, `document.getElementById('tour').checkVisibility()`) {
			t.Errorf("%s doesn't leave the tour", how)
		}
	}
	b.Do(t, chromedp.KeyEvent("\r"))
	leaves("Done")
	b.Do(t, chromedp.EmulateViewport(375, 900), chromedp.Navigate(c.urls[0]+"/?tour=3"), ran)
	if over := browsertest.Eval[int](t, b,
		`document.documentElement.scrollWidth - innerWidth`); over > 0 {
		t.Errorf("the page is %d pixels wider than the screen", over)
	}
	for _, found := range b.Inaccessible(t) {
		t.Error(found)
	}
	b.Shoot(t, "tour-375")
	b.Do(t, chromedp.Click("#tour-leave", chromedp.ByQuery))
	leaves("its button")
	b.Do(t, chromedp.Navigate(c.urls[0]+"/?tour=99"), ran,
		chromedp.Evaluate(
			`document.querySelector('#fault').dispatchEvent(new Event('change', { bubbles: true }))`,
			nil))
	leaves("a setting that is changed")
	for _, p := range b.Said() {
		t.Error(p)
	}
}

// If settings are invalid, the page describes the error.
func TestPageSaysWhatIsWrong(t *testing.T) {
	b := browsertest.Open(t)
	c := start(t, 1)
	b.Do(t, chromedp.Navigate(c.urls[0]+"/?stage=compare&replicas=3&requests=1"),
		browsertest.Over(`document.querySelector('#problem').textContent !== ''`))
	if said := browsertest.Eval[string](t, b,
		`document.querySelector('#problem').textContent`); !strings.Contains(said,
		"at least one for each replica") {
		t.Errorf("it says %q", said)
	}
	b.Do(t, chromedp.Navigate(c.urls[0]+"/?stage=herd&versus=predecessor"), ran)
	for _, said := range browsertest.Eval[[]string](t, b,
		`[...document.querySelectorAll('.verdict')].map(v => v.textContent)`) {
		if !strings.Contains(said, "this needs a ZooKeeper") {
			t.Errorf("it says %q", said)
		}
	}
}
