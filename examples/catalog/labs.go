package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/examples/catalog/internal/lab"
	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

const (
	// mostRuns is how many runs of the lab go on at once: they share the machine with the shop, and
	// each other's times.
	mostRuns = 4

	// sendTimeout is how long a client of a run may take for what is sent to it at a time. One that
	// is held up for slowAfter is given up as soon as somebody else needs its place.
	sendTimeout = 5 * time.Second
	slowAfter   = time.Second

	// mostSteps is how many steps wait for a client, which is then given up.
	mostSteps = 1 << 16
)

const eventStream = "text/event-stream"

// laboratory serves the runs of the lab.
type laboratory struct {
	world lab.World
	log   *slog.Logger

	mu   sync.Mutex // guards runs
	runs map[*stream]struct{}

	simulations chan struct{} // has an element for each that goes on

	stopping chan struct{} // closed when the shop stops
	stop     func()        // closes it, any number of times
}

var (
	// errStopping ends a run, which would last longer than a shop that stops waits for its
	// requests.
	errStopping = errors.New("the shop is being stopped")

	// errSlow ends one whose client doesn't read.
	errSlow = errors.New("its client reads too slowly")
)

func newLaboratory(w lab.World, log *slog.Logger) *laboratory {
	stopping := make(chan struct{})
	return &laboratory{
		world: w, log: log, runs: make(map[*stream]struct{}), simulations: make(chan struct{}, mostSimulations),
		stopping: stopping, stop: sync.OnceFunc(func() { close(stopping) }),
	}
}

func (l *laboratory) routes(r chi.Router) {
	r.Get("/lab/choices.json", l.choices)
	r.Post("/lab/run", l.run)
	r.Post("/lab/simulate", l.simulate)
}

// stageChoice is a stage as it is offered.
type stageChoice struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Flaw  string `json:"flaw,omitempty"`
	Needs string `json:"needs,omitempty"` // what is missing here, so that it can't be chosen
}

type faultChoice struct {
	Name lab.Fault `json:"name"`
	Text string    `json:"text"`
}

// choices says what there is to choose from.
func (l *laboratory) choices(w http.ResponseWriter, _ *http.Request) {
	var c struct {
		Stages   []stageChoice       `json:"stages"`
		Faults   []faultChoice       `json:"faults"`
		Defaults map[string][]string `json:"defaults"` // as in an address
	}
	for _, s := range stage.All() {
		c.Stages = append(c.Stages, stageChoice{s.Name, s.Title, s.Flaw, l.missing(s)})
	}
	for _, f := range lab.Faults() {
		c.Faults = append(c.Faults, faultChoice{f.Name, f.Text})
	}
	c.Defaults = lab.Defaults().Query()
	writeJSON(w, http.StatusOK, c)
}

// missing is what a stage needs that is not here.
func (l *laboratory) missing(s stage.Stage) string {
	here := map[stage.Needs]bool{
		"": true, stage.NeedsDB: l.world.DB != nil, stage.NeedsMasters: len(l.world.Masters) > 0, stage.NeedsZooKeeper: l.world.ZooKeeper != nil,
	}
	if here[s.Needs] {
		return ""
	}
	return string(s.Needs)
}

// run makes a run with the settings of the address, and sends its events as they come: "steps" with
// some of them, and at the end one "report", or "failed" if it could not be made. A client that
// leaves ends it, and so does a shop that stops.
func (l *laboratory) run(w http.ResponseWriter, r *http.Request) {
	settings, err := lab.Parse(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.ContentLength != 0 { // net/http would not see the client leave before it has read that
		refuse(w, http.StatusBadRequest, "the settings of a run are those of its address: want no body")
		return
	}
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	s := newStream(w, end)
	if !l.admit(s, time.Now()) {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d runs go on already: try again in a few seconds", mostRuns))
		return
	}
	defer l.leave(s)
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s.flush()
	go l.untilStopped(ctx, end)
	var report lab.Report
	s.during(func() { report, err = lab.Run(ctx, l.world, settings, s.step) })
	switch {
	case r.Context().Err() != nil, context.Cause(ctx) == errSlow: // the client has left, or was left
	case context.Cause(ctx) == errStopping:
		s.send("failed", errStopping.Error())
	case err != nil:
		l.log.Warn("a run of the lab failed", "stage", settings.Stage, "fault", settings.Fault, "error", err)
		s.send("failed", withoutSecrets(err.Error()))
	default:
		s.send("report", report)
	}
}

// untilStopped ends what is done for a client when the shop stops.
func (l *laboratory) untilStopped(ctx context.Context, end context.CancelCauseFunc) {
	select {
	case <-l.stopping:
		end(errStopping)
	case <-ctx.Done():
	}
}

// admit gives a run a place. If there is none, the slowest client loses its own, and not who comes
// last: a client that doesn't read would keep everybody else out.
func (l *laboratory) admit(s *stream, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.runs) >= mostRuns {
		out := slowest(l.runs, now)
		if out == nil {
			return false
		}
		delete(l.runs, out)
		out.giveUp()
	}
	l.runs[s] = struct{}{}
	return true
}

func (l *laboratory) leave(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, s)
}

// slowest is the stream whose client has been waited for the longest, if that is long.
func slowest(all map[*stream]struct{}, now time.Time) (out *stream) {
	most := slowAfter
	for s := range all {
		if held := s.held(now); held >= most {
			out, most = s, held
		}
	}
	return out
}

// stream is a stream of server-sent events (WHATWG HTML, section 9.2). A client that reads slowly
// must not slow down what it looks at, so steps wait here, and one that reads too slowly is given
// up: that ends its run.
type stream struct {
	w    http.ResponseWriter
	conn *http.ResponseController
	end  context.CancelCauseFunc

	mu      sync.Mutex // guards what follows
	steps   []lab.Event
	since   time.Time // when what is being sent was begun; zero: nothing is
	givenUp bool
	more    chan struct{} // has an element when there are steps
}

func newStream(w http.ResponseWriter, end context.CancelCauseFunc) *stream {
	return &stream{w: w, conn: http.NewResponseController(w), end: end, more: make(chan struct{}, 1)}
}

// step takes an event, to be sent soon.
func (s *stream) step(e lab.Event) {
	s.mu.Lock()
	if !s.givenUp {
		s.steps = append(s.steps, e)
	}
	tooMany := len(s.steps) > mostSteps
	s.mu.Unlock()
	if tooMany {
		s.giveUp()
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// held is for how long the client hasn't taken what is being sent.
func (s *stream) held(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return now.Sub(s.since)
}

// giveUp ends the run, and what is being sent.
func (s *stream) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.givenUp, s.steps = true, nil
	_ = s.conn.SetWriteDeadline(time.Now()) // what is no connection holds up nobody
	s.end(errSlow)
}

// during sends steps while something is done, and those that are left when it is over.
func (s *stream) during(do func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			select {
			case <-s.more:
				s.sendSteps()
			case <-ctx.Done():
				s.sendSteps()
				return
			}
		}
	})
	do()
	cancel()
	sending.Wait()
}

func (s *stream) sendSteps() {
	s.mu.Lock()
	steps := s.steps
	s.steps = nil
	s.mu.Unlock()
	if len(steps) > 0 {
		s.send("steps", steps)
	}
}

// send sends an event. If it doesn't get through in time, the client is given up.
func (s *stream) send(kind string, what any) {
	data, err := json.Marshal(what)
	if err != nil {
		return // nothing of ours can't be told as JSON
	}
	s.within(func() error {
		if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", kind, data); err != nil {
			return err
		}
		return s.conn.Flush()
	})
}

func (s *stream) flush() { s.within(s.conn.Flush) }

// within writes within sendTimeout.
func (s *stream) within(write func() error) {
	s.mu.Lock()
	if s.givenUp {
		s.mu.Unlock()
		return
	}
	s.since = time.Now()
	_ = s.conn.SetWriteDeadline(s.since.Add(sendTimeout))
	s.mu.Unlock()
	err := write()
	s.mu.Lock()
	s.since = time.Time{}
	s.mu.Unlock()
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.giveUp()
	}
}
