package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/examples/catalog/internal/lab"
	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// mostRuns is how many runs of the lab go on at once: they share the machine with the shop, and each other's times.
const mostRuns = 4

const eventStream = "text/event-stream"

// laboratory serves the runs of the lab.
type laboratory struct {
	world lab.World
	log   *slog.Logger
	runs  chan struct{} // one for each under way

	stopping chan struct{} // closed when the shop stops
	stop     func()        // closes it, any number of times
}

// errStopping ends a run, which would last longer than a shop that stops waits for its requests.
var errStopping = errors.New("the shop is being stopped")

func newLaboratory(w lab.World, log *slog.Logger) *laboratory {
	stopping := make(chan struct{})
	return &laboratory{
		world: w, log: log, runs: make(chan struct{}, mostRuns),
		stopping: stopping, stop: sync.OnceFunc(func() { close(stopping) }),
	}
}

func (l *laboratory) routes(r chi.Router) {
	r.Get("/lab/choices.json", l.choices)
	r.Get("/lab/run", l.run)
	r.Head("/lab/run", func(w http.ResponseWriter, _ *http.Request) { // nobody would see the run
		w.Header().Set("Content-Type", eventStream)
	})
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

// run makes a run with the settings of the address, and sends its events as they come: "steps" with some of them, and at the
// end one "report", or "failed" if it could not be made. A client that leaves ends it, and so does a shop that stops.
func (l *laboratory) run(w http.ResponseWriter, r *http.Request) {
	settings, err := lab.Parse(r.URL.Query())
	if err != nil {
		writeJSON(w, http.StatusBadRequest, failure{Status: http.StatusBadRequest, Error: err.Error()})
		return
	}
	select {
	case l.runs <- struct{}{}:
		defer func() { <-l.runs }()
	default:
		w.Header().Set("Retry-After", "5")
		writeJSON(w, http.StatusServiceUnavailable, failure{
			Status: http.StatusServiceUnavailable, Error: fmt.Sprintf("%d runs go on already: try again in a few seconds", mostRuns),
		})
		return
	}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	go func() {
		select {
		case <-l.stopping:
			end(errStopping)
		case <-ctx.Done():
		}
	}()
	s := newStream(w)
	var report lab.Report
	s.during(func() { report, err = lab.Run(ctx, l.world, settings, s.step) })
	switch {
	case r.Context().Err() != nil: // the client has left
	case context.Cause(ctx) == errStopping:
		s.send("failed", errStopping.Error())
	case err != nil:
		l.log.Warn("a run of the lab failed", "stage", settings.Stage, "fault", settings.Fault, "error", err)
		s.send("failed", err.Error())
	default:
		s.send("report", report)
	}
}

// stream is a stream of server-sent events (WHATWG HTML, section 9.2). A client that reads slowly must not slow down what
// it looks at, so steps wait here.
type stream struct {
	w     http.ResponseWriter
	flush func()

	mu    sync.Mutex // guards what follows
	steps []lab.Event
	more  chan struct{} // has an element when there are steps
}

func newStream(w http.ResponseWriter) *stream {
	s := &stream{w: w, flush: func() {}, more: make(chan struct{}, 1)}
	if f, ok := w.(http.Flusher); ok {
		s.flush = f.Flush
	}
	s.flush()
	return s
}

// step takes an event, to be sent soon.
func (s *stream) step(e lab.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, e)
	select {
	case s.more <- struct{}{}:
	default:
	}
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

// send sends an event. An error means that the client has left.
func (s *stream) send(kind string, what any) {
	data, err := json.Marshal(what)
	if err != nil {
		return // nothing of ours can't be told as JSON
	}
	fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", kind, data)
	s.flush()
}
