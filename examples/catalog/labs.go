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
	// mostRuns is the number of runs of the lab that may go on at once. They share the machine with
	// the shop, and slow each other down.
	mostRuns = 4

	// sendTimeout is the time limit for a client of a run to receive one piece of data. If a client
	// doesn't receive data for slowAfter, it is given up as soon as another client needs its place.
	sendTimeout = 5 * time.Second
	slowAfter   = time.Second

	// mostSteps is the largest number of steps that wait for a client. At this number the client is
	// given up.
	mostSteps = 1 << 16
)

const eventStream = "text/event-stream"

// laboratory serves the runs of the lab.
type laboratory struct {
	world lab.World
	log   *slog.Logger

	mu   sync.Mutex // guards runs
	runs map[*stream]struct{}

	simulations chan struct{} // has an element for each running simulation

	stopping chan struct{} // closed when the shop stops
	stop     func()        // closes stopping; may be called any number of times
}

var (
	// errStopping ends a run or a simulation when the shop stops. A run can last longer than a
	// stopping shop waits for requests.
	errStopping = errors.New("the shop is being stopped")

	// errSlow ends a run whose client doesn't read.
	errSlow = errors.New("its client reads too slowly")
)

func newLaboratory(w lab.World, log *slog.Logger) *laboratory {
	stopping := make(chan struct{})
	return &laboratory{
		world: w, log: log, runs: make(map[*stream]struct{}),
		simulations: make(chan struct{}, mostSimulations),
		stopping:    stopping, stop: sync.OnceFunc(func() { close(stopping) }),
	}
}

func (l *laboratory) routes(r chi.Router) {
	r.Get("/lab/choices.json", l.choices)
	r.Post("/lab/run", l.run)
	r.Post("/lab/simulate", l.simulate)
}

// stageChoice is a stage in the list of choices.
type stageChoice struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Flaw  string `json:"flaw,omitempty"`
	// The missing system because of which the stage can't be chosen.
	Needs string `json:"needs,omitempty"`
}

type faultChoice struct {
	Name lab.Fault `json:"name"`
	Text string    `json:"text"`
}

// choices sends the stages and faults that can be chosen.
func (l *laboratory) choices(w http.ResponseWriter, _ *http.Request) {
	var c struct {
		Stages   []stageChoice       `json:"stages"`
		Faults   []faultChoice       `json:"faults"`
		Defaults map[string][]string `json:"defaults"` // in the form of a URL's query
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

// missing returns the name of a system that a stage needs and that isn't available.
func (l *laboratory) missing(s stage.Stage) string {
	here := map[stage.Needs]bool{
		"": true, stage.NeedsDB: l.world.DB != nil, stage.NeedsMasters: len(l.world.Masters) > 0,
		stage.NeedsZooKeeper: l.world.ZooKeeper != nil,
	}
	if here[s.Needs] {
		return ""
	}
	return string(s.Needs)
}

// run carries out a run with the settings in the URL. While the run goes on, it sends the events of
// the run in messages "steps". At the end it sends one "report", or "failed" if the run failed or
// the shop stops. The run ends early if the client leaves or the shop stops.
func (l *laboratory) run(w http.ResponseWriter, r *http.Request) {
	settings, err := lab.Parse(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	// net/http notices that the client leaves only after it has read the body.
	if r.ContentLength != 0 {
		refuse(w, http.StatusBadRequest,
			"the settings of a run are those of its address: want no body")
		return
	}
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	s := newStream(w, end)
	if !l.admit(s, time.Now()) {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable,
			fmt.Sprintf("%d runs go on already: try again in a few seconds", mostRuns))
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
	case r.Context().Err() != nil, context.Cause(ctx) == errSlow:
		// The client has left, or was given up.
	case context.Cause(ctx) == errStopping:
		s.send("failed", errStopping.Error())
	case err != nil:
		l.log.Warn("a run of the lab failed", "stage", settings.Stage, "fault", settings.Fault,
			"error", err)
		s.send("failed", withoutSecrets(err.Error()))
	default:
		s.send("report", report)
	}
}

// untilStopped ends the work for a client when the shop stops.
func (l *laboratory) untilStopped(ctx context.Context, end context.CancelCauseFunc) {
	select {
	case <-l.stopping:
		end(errStopping)
	case <-ctx.Done():
	}
}

// admit gives a run a place. If there is no free place, the slowest client loses its place.
// Otherwise clients that don't read could block all other clients.
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

// slowest returns the stream that has waited longest for its client, if it has waited for at least
// slowAfter.
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
// must not slow down its run, so steps wait in the stream. If a client reads too slowly, it is
// given up, and its run ends.
type stream struct {
	w    http.ResponseWriter
	conn *http.ResponseController
	end  context.CancelCauseFunc

	mu    sync.Mutex // guards the fields below
	steps []lab.Event
	// The time at which the current data began to be sent; zero: no data is being sent.
	since   time.Time
	givenUp bool
	more    chan struct{} // has an element if there are steps
}

func newStream(w http.ResponseWriter, end context.CancelCauseFunc) *stream {
	return &stream{
		w: w, conn: http.NewResponseController(w), end: end, more: make(chan struct{}, 1),
	}
}

// step adds an event. It is sent soon.
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

// held returns the time for which the client hasn't received the current data.
func (s *stream) held(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return now.Sub(s.since)
}

// giveUp ends the run and the current send.
func (s *stream) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.givenUp, s.steps = true, nil
	_ = s.conn.SetWriteDeadline(time.Now()) // without a connection nothing can block
	s.end(errSlow)
}

// during calls do, and sends steps while do runs. After do it sends the remaining steps.
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

// send sends an event. If the client doesn't receive it in time, the client is given up.
func (s *stream) send(kind string, what any) {
	data, err := json.Marshal(what)
	if err != nil {
		return // all values of the lab can be encoded as JSON
	}
	s.within(func() error {
		if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", kind, data); err != nil {
			return err
		}
		return s.conn.Flush()
	})
}

func (s *stream) flush() { s.within(s.conn.Flush) }

// within calls write with the time limit sendTimeout.
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
