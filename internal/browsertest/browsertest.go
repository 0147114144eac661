// Package browsertest lets tests open pages in a headless Chromium.
package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// TB is the part of *testing.T that this package needs.
type TB interface {
	childproc.TB
	ArtifactDir() string
	Context() context.Context
	Logf(format string, args ...any)
}

// Browser is a tab of a headless browser, with the problems that the tab has reported.
type Browser struct {
	ctx context.Context

	mu       sync.Mutex // guards problems
	problems []string
}

// Open opens a tab for one test. If there is no browser, it skips the test or fails it.
func Open(t TB) *Browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		childproc.Missing(t, "needs a browser", "there is no chromium on the PATH")
		return nil
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 30*time.Minute)
	t.Cleanup(cancel)
	b := &Browser{ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			b.problems = append(b.problems, fmt.Sprintf("console.%s: %v", e.Type, e.Args))
		case *log.EventEntryAdded:
			b.problems = append(b.problems,
				fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	})
	return b
}

// Do runs actions in the tab.
func (b *Browser) Do(t TB, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		t.Fatalf("%v; the browser says %q", err, b.Said())
	}
}

// Eval returns the value of a JavaScript expression.
func Eval[T any](t TB, b *Browser, expression string) (value T) {
	t.Helper()
	b.Do(t, chromedp.Evaluate(expression, &value))
	return value
}

// Said returns the problems that the tab has reported.
func (b *Browser) Said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.problems
}

// Over waits until an expression is true. While the tab leaves a page, the expression has no value.
func Over(expression string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		timeout := time.After(5 * time.Minute)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var yes bool
			err := chromedp.Evaluate(expression, &yes).Do(ctx)
			if err == nil && yes {
				return nil
			}
			select {
			case <-tick.C:
			case <-timeout:
				return fmt.Errorf("still not so: %s (%v)", expression, err)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// Shoot writes a picture of the page, for human readers.
func (b *Browser) Shoot(t TB, name string) {
	t.Helper()
	var png []byte
	b.Do(t, chromedp.FullScreenshot(&png, 100))
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name+".png"), png, 0o600); err != nil {
		t.Errorf("%v", err)
	}
}

// Axe is the name of the environment variable with the path of axe-core, which tests the
// accessibility of a page. axe-core is not in this repository.
const Axe = "CACHEGUARD_AXE"

// Inaccessible returns the serious problems that axe-core finds on the page. If axe-core is
// missing, it returns nothing and logs that.
func (b *Browser) Inaccessible(t TB) (all []string) {
	t.Helper()
	file := os.Getenv(Axe)
	if file == "" {
		t.Logf("not looked at with axe-core: %s names no file of it", Axe)
		return nil
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v", err)
	}
	b.Do(t, chromedp.Evaluate(string(source)+"\n;true", nil),
		chromedp.Evaluate(`axe.run().then(found => found.violations
		.filter(v => ["serious", "critical"].includes(v.impact))
		.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html.slice(0, 120)).join("; ")))`,
			&all,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
				return p.WithAwaitPromise(true)
			}))
	return all
}

// Looks shows the page in a window with this width, in the dark or the light color scheme.
func (b *Browser) Looks(t TB, width int64, dark bool) {
	t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.Do(t, chromedp.EmulateViewport(width, 900),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
		}))
}
