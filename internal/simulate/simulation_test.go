package simulate

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func policy(t *testing.T, name string) Policy {
	t.Helper()
	for _, p := range Policies {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no policy %q", name)
	return Policy{}
}

// calm is a fleet without disturbances, with constant demand and loads of equal length.
func calm() Config {
	c := Default()
	c.Replicas, c.Keys, c.Low, c.High, c.Time = 10, 1, 50, 50, time.Hour
	c.TTL, c.Jitter, c.Stale, c.Sigma, c.Capacity = 10*time.Second, 0, 5*time.Second, 0, 0
	c.Deploys, c.FailoverFor, c.OneByOne = 0, 0, 10_000_000
	return c
}

// mixed is a small fleet with all disturbances.
func mixed() Config {
	c := Default()
	c.Replicas, c.Keys, c.Low, c.High, c.Time, c.Day = 20, 3_000, 100, 600, 20*time.Minute,
		20*time.Minute
	c.TTL, c.Stale, c.OneByOne = time.Minute, 30*time.Second, 20_000
	c.Deploys, c.DeployTime, c.FailoverAt, c.Capacity = 3, 2*time.Minute, 10*time.Minute, 100
	return c
}

func simulated(t *testing.T, c Config, policy Policy) Result {
	t.Helper()
	r, err := Run(t.Context(), c, policy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheSameSeedIsTheSameRun(t *testing.T) {
	c := mixed()
	c.Time, c.FailoverAt = 6*time.Minute, 3*time.Minute
	for _, p := range Policies {
		one, again := simulated(t, c, p), simulated(t, c, p)
		if !reflect.DeepEqual(one, again) {
			t.Errorf("%s: two runs with one seed:\n%+v\n%+v", p.Name, one, again)
		}
		other := c
		other.Seed++
		if reflect.DeepEqual(one, simulated(t, other, p)) {
			t.Errorf("%s: two seeds, one result", p.Name)
		}
	}
}

// TestEachRequestIsAnsweredOnce: the number of counted requests is the expected number, and each
// request has one answer and one latency.
func TestEachRequestIsAnsweredOnce(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"everything":  func(*Config) {},
		"loses":       func(c *Config) { c.Loses = true },
		"fail closed": func(c *Config) { c.FailClosed = true },
		"in bulk":     func(c *Config) { c.OneByOne = 0 },
		"busy Redis": func(c *Config) {
			c.Costs.Get, c.Costs.Message = 800*time.Microsecond, time.Millisecond
		},
		"swamped":     func(c *Config) { c.Costs.Get = 3 * time.Millisecond },
		"busy origin": func(c *Config) { c.Capacity, c.Queue = 8, 50 },
	} {
		t.Run(name, func(t *testing.T) {
			c := mixed()
			change(&c)
			for _, p := range Policies {
				s := newSimulation(c, p)
				if err := s.run(context.Background()); err != nil {
					t.Fatal(err)
				}
				s.bulk.finish()
				r := s.report()
				want := s.demand.during(0, s.end)
				if math.Abs(float64(r.Requests)-want) > 6*math.Sqrt(want)+0.002*want {
					t.Errorf("%s: %d requests, want %.0f", p.Name, r.Requests, want)
				}
				if r.Open != 0 || s.all.Total() != r.Requests {
					t.Errorf("%s: of %d requests %d have no answer, and %d a latency", p.Name,
						r.Requests, r.Open, s.all.Total())
				}
				if found := s.missed.Total(); found > r.Loaded+r.Errors || found < r.Loaded {
					t.Errorf("%s: %d found no value, %d got a load's, and %d an error", p.Name,
						found, r.Loaded, r.Errors)
				}
				if s.origin.in != 0 || s.budget.in != 0 {
					t.Errorf("%s: %d loads and %d permits are left", p.Name, s.origin.in,
						s.budget.in)
				}
				for i := range s.replicas.flights {
					if n := len(s.replicas.flights[i]); n > 0 {
						t.Errorf("%s: %d flights are left", p.Name, n)
					}
				}
			}
		})
	}
}

// TestRenewal: a key is loaded each time that its TTL, the gap to the next request and the load are
// over.
func TestRenewal(t *testing.T) {
	for _, rate := range []float64{0.02, 0.2, 5} {
		for _, oneByOne := range []int{0, 10_000_000} {
			c := calm()
			c.Low, c.High, c.Time, c.OneByOne = rate, rate, 20*time.Hour, oneByOne
			keys := 1
			if oneByOne == 0 { // many keys that share the rate
				keys = 50
				c.Keys, c.Zipf, c.Low, c.High, c.TTL = keys, 0, rate*50, rate*50, 100*time.Second
				if rate*c.Load.Seconds() > 0.05 {
					continue // it is for keys that are asked for seldom
				}
			} else if rate*c.Load.Seconds() < 0.001*2 { // these are never simulated one by one
				c.Load = 200 * time.Millisecond
			}
			r := simulated(t, c, policy(t, "lease"))
			cycle := c.TTL.Seconds() + 1/rate
			if oneByOne > 0 {
				cycle += c.Load.Seconds()
			}
			want := float64(keys) * c.Time.Seconds() / cycle
			// The number of renewals varies by no more than that of Poisson events; slots cost half
			// a second of TTL.
			near(t, "loads", float64(r.Loads), want, math.Sqrt(want)/2+want*0.001)
		}
	}
}

// values runs a simulation of a single key, and returns how often it got a value.
func values(t *testing.T, c Config, p Policy) (r Result, turns float64) {
	t.Helper()
	s := newSimulation(c, p)
	if len(s.keys) != 1 {
		t.Fatalf("%d keys are simulated one by one", len(s.keys))
	}
	if err := s.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.bulk.finish()
	return s.report(), float64(s.keys[0].turn) - 1 // the first one was there at the beginning
}

// TestLoadsOfAnExpiry: without protection every request during the load loads, with flights every
// process that has one, and with a lock or a lease one does.
func TestLoadsOfAnExpiry(t *testing.T) {
	c := calm()
	c.Low, c.High, c.Time, c.Replicas = 50, 50, 10*time.Hour, 10
	cycles := c.Time.Seconds() / (c.TTL.Seconds() + 1./50 + 0.1)
	// The value is there when it has been stored, after a look-up and a load.
	rate, window := 50., 0.1+300e-6
	for name, want := range map[string]float64{
		"none":  1 + rate*window,
		"local": 1 + 9*(1-math.Exp(-rate*window/10)),
		"lock":  1,
		"lease": 1,
		"stale": 1,
	} {
		r := simulated(t, c, policy(t, name))
		got := float64(r.Loads) / cycles
		if want == 1 {
			s, turns := values(t, c, policy(t, name))
			if float64(s.Loads) != turns || s.MostOfOne != 1 {
				t.Errorf("%s: %d loads made %v values, %d at most of one", name, s.Loads, turns,
					s.MostOfOne)
			}
			continue
		}
		near(t, name+": loads of an expiry", got, want, math.Sqrt(want/cycles)+0.02)
	}
}

func TestStaleAndEarly(t *testing.T) {
	c := calm()
	stale := simulated(t, c, policy(t, "stale"))
	if stale.Loaded != 0 || stale.Stale == 0 {
		t.Errorf("with a stale window %d waited, %d got a stale value", stale.Loaded, stale.Stale)
	}
	// During a refresh all get the stale value: 50 a second for a load and a round trip or two, and
	// the one who began it.
	want := float64(stale.Loads) * (1 + 50*0.1003)
	near(t, "stale answers", float64(stale.Stale), want, math.Sqrt(want)+want*0.004)

	c.Low, c.High = 1000, 1000
	early := simulated(t, c, policy(t, "early"))
	if early.Loaded != 0 || float64(early.Stale) > 1e-4*float64(early.Requests) {
		t.Errorf("with early refresh %d waited, %d of %d got a stale value", early.Loaded,
			early.Stale, early.Requests)
	}
	// The first of the lots falls beta took ln(lots) before expiry, and Euler's constant times that
	// sooner than on average.
	lead := 0.1 * (math.Log(1000*0.1) + 0.5772)
	want = c.Time.Seconds() / (10 - lead + 0.1)
	near(t, "early refreshes", float64(early.Loads), want, want*0.002)
}

// TestInBulkAsOneByOne has the same keys in both ways.
func TestInBulkAsOneByOne(t *testing.T) {
	for _, name := range []string{
		"none", "local", "lock", "lease", "stale", "none of few", "local of few",
	} {
		c := calm()
		c.Keys, c.Zipf, c.Low, c.High, c.Time = 2000, 0.5, 100, 300, time.Hour
		c.Day, c.TTL, c.Stale, c.Jitter = time.Hour, 100*time.Second, 50*time.Second, 0.2
		c.Load = 100 * time.Millisecond
		name, few := strings.CutSuffix(name, " of few")
		if few { // so that a tenth of loads has company
			c.Keys, c.Zipf, c.Low, c.High, c.Load = 200, 0, 100, 100, 200*time.Millisecond
		}
		one := simulated(t, c, policy(t, name))
		c.OneByOne = 0
		bulk := simulated(t, c, policy(t, name))
		if one.OneByOne < c.Keys || bulk.OneByOne != 0 {
			t.Fatalf("%d and %d keys one by one", one.OneByOne, bulk.OneByOne)
		}
		for what, of := range map[string]func(Result) float64{
			"loads":    func(r Result) float64 { return float64(r.Loads) },
			"fresh":    func(r Result) float64 { return float64(r.Fresh) },
			"found no": func(r Result) float64 { return float64(r.Loaded) },
			"stale":    func(r Result) float64 { return float64(r.Stale) },
			"commands": func(r Result) float64 { return float64(r.Commands) },
			"missed":   func(r Result) float64 { return float64(r.Missed.P50) },
		} {
			if a, b := of(one), of(bulk); math.Abs(a-b) > 0.02*a+3*math.Sqrt(a) {
				t.Errorf("%s: %s is %v one by one, %v in bulk", name, what, a, b)
			}
		}
	}
}

// TestNoRequestIsCountedTwice: who still waits when the value is there is no hit, and when a flight
// ends without a value the next request of its process begins another one.
func TestNoRequestIsCountedTwice(t *testing.T) {
	slow := calm()
	slow.TTL, slow.Load, slow.Time = 2*time.Second, time.Second, 10*time.Hour
	slow.PollLeast, slow.PollMost = 500*time.Millisecond, time.Second
	refused := slow
	refused.Capacity, refused.Queue, refused.Keys, refused.Zipf = 1, 1, 2, 0
	for name, r := range map[string]Result{
		"who polls":      simulated(t, slow, policy(t, "lock")),
		"who is refused": simulated(t, refused, policy(t, "local")),
	} {
		want := 50 * 36_000.
		near(t, "requests of "+name, float64(r.Requests), want, math.Sqrt(want)+want*0.0005)
		if refusals := name == "who is refused"; refusals != (r.Errors > 0) {
			t.Errorf("%s: %d errors", name, r.Errors)
		}
	}
}

// TestSlowRedis: a process that gets no answer in time loads without Redis, and stores nothing.
func TestSlowRedis(t *testing.T) {
	c := calm()
	c.Costs.Get = c.Timeout + time.Millisecond
	for _, name := range []string{"none", "local", "lock", "lease"} {
		if r := simulated(t, c, policy(t, name)); r.Loads < 1000 || r.MostOfOne != 0 ||
			r.Fresh > r.Requests/50 {
			t.Errorf("%s: %d loads, %d that could be stored, %d of %d requests found a value", name,
				r.Loads, r.MostOfOne, r.Fresh, r.Requests)
		}
	}
}

// TestPatience: a process with a breaker waits for three commands, and then no more.
func TestPatience(t *testing.T) {
	for name, want := range map[string]int64{"lease": 3, "local": 5} {
		c := calm()
		s := newSimulation(c, policy(t, name))
		f := &flight{replica: 3}
		sum := int64(0)
		for range 5 {
			sum += s.patience(f)
		}
		if sum != want*int64(c.Timeout) {
			t.Errorf("%s: 5 commands are waited for %v, want %d times %v", name, time.Duration(sum),
				want, c.Timeout)
		}
	}
}

// TestKillFreesTheOrigin: the load of a process that ends takes no place at the origin any more.
func TestKillFreesTheOrigin(t *testing.T) {
	s := newSimulation(calm(), policy(t, "early"))
	f := s.begin(&s.keys[0], 3, 1)
	s.permit(f)
	if s.origin.in != 1 || s.budget.in != 1 {
		t.Fatalf("%d loads and %d permits, want one of each", s.origin.in, s.budget.in)
	}
	s.kill(3)
	if s.origin.in != 0 || s.budget.in != 0 || s.result.Lost != 1 {
		t.Errorf("%d loads and %d permits are left, %d requests lost, want 0, 0 and 1", s.origin.in,
			s.budget.in, s.result.Lost)
	}
}

// TestDeploy: what a process leads dies with it, and somebody else loads when the lease has run
// out.
func TestDeploy(t *testing.T) {
	c := calm()
	c.Replicas, c.Low, c.High, c.Time, c.TTL, c.Load = 4, 200, 200, 10*time.Minute, time.Second,
		5*time.Second
	c.Stale = time.Second
	c.Deploys, c.DeployTime, c.Down = 20, 20*time.Second, 2*time.Second
	quiet := c
	quiet.Deploys = 0
	for _, name := range []string{"local", "lock", "lease"} {
		with, without := simulated(t, c, policy(t, name)), simulated(t, quiet, policy(t, name))
		if without.Lost != 0 || without.Errors != 0 || with.Lost == 0 || with.Errors != with.Lost {
			t.Errorf("%s: %d of %d errors are lost requests; without deploys %d of %d", name,
				with.Lost, with.Errors, without.Lost, without.Errors)
		}
		if name == "local" {
			continue
		}
		if without.MostOfOne != 1 || with.MostOfOne < 2 {
			t.Errorf("%s: %d loads of one key when leaders die, %d when not", name, with.MostOfOne,
				without.MostOfOne)
		}
		// Who came when the load began waits for it in vain, then for the lease, then for another
		// load, perhaps twice.
		lease := map[string]time.Duration{"lease": c.Lease * 2 / 3, "lock": c.Lock - c.Load}[name]
		if least := int64(c.Load + lease); with.All.Max < least ||
			without.All.Max > int64(c.Load+300*time.Millisecond) {
			t.Errorf("%s: the longest wait is %v when leaders die, %v when not", name,
				time.Duration(with.All.Max), time.Duration(without.All.Max))
		}
	}
}

// TestFailover: without Redis each process loads for itself; what Redis has lost is loaded again.
func TestFailover(t *testing.T) {
	c := calm()
	c.Low, c.High, c.Time, c.TTL, c.Replicas = 500, 500, 10*time.Minute, 5*time.Minute, 10
	c.FailoverAt, c.FailoverFor = 4*time.Minute, 10*time.Second
	c.Keys, c.Zipf = 10, 0
	loads := func(c Config, name string) float64 {
		return float64(simulated(t, c, policy(t, name)).Loads)
	}
	kept := func(c Config, name string) float64 {
		c.FailoverFor = 0
		return loads(c, name)
	}
	near(t, "loads of 10 s without Redis nor protection", loads(c, "none")-kept(c, "none"), 5000,
		100)
	// 5 requests a second of each key and process, of which a load takes up those of its time.
	near(t, "with flights", loads(c, "lease")-kept(c, "lease"), 5000/(1+5*0.1), 80)
	near(t, "with flights that wait for Redis", loads(c, "local")-kept(c, "local"), 5000/(1+5*0.35),
		80)

	loses := c
	loses.Loses = true
	s := newSimulation(loses, policy(t, "lease"))
	end := int64(c.FailoverAt + c.FailoverFor)
	look := func(at int64, what string, fine func(k *key) bool) {
		s.plan(at, func() {
			for i := range s.keys {
				if !fine(&s.keys[i]) {
					t.Errorf("%s: it was filled at %d and is fresh until %d, the failover ended at %d",
						what, s.keys[i].filled, s.keys[i].freshUntil, end)
				}
			}
		})
	}
	look(end-1, "a value has come through the failover", func(k *key) bool {
		return k.freshUntil == 0
	})
	look(end+2e9, "a value is not loaded again", func(k *key) bool {
		return k.filled > end && k.fresh(s.now)
	})
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}

	c.FailClosed = true
	r := simulated(t, c, policy(t, "lease"))
	near(t, "errors when requests fail without Redis", float64(r.Errors), 5000, 80)
	if r.Failover != r.Errors {
		t.Errorf("%d of %d errors are the failover's", r.Failover, r.Errors)
	}
}

// TestTheBudgetIsNeverExceeded: neither that of the fleet nor the origin's capacity, and they are
// made use of.
func TestTheBudgetIsNeverExceeded(t *testing.T) {
	for _, oneByOne := range []int{0, 5_000, 10_000_000} {
		c := mixed()
		c.FailoverFor, c.Capacity, c.Budget, c.OneByOne, c.Deploys, c.Time = 0, 0, 4, oneByOne, 0,
			10*time.Minute
		c.Low, c.High = 50, 250
		free := simulated(t, c, policy(t, "stale"))
		r := simulated(t, c, policy(t, "early"))
		if free.LoadsAtOnce <= 4 || r.LoadsAtOnce > 4 || r.LoadsAtOnce < 3 {
			t.Errorf("%d keys one by one: %d loads at once without a budget, %d with one of 4",
				r.OneByOne, free.LoadsAtOnce, r.LoadsAtOnce)
		}
		c.Capacity = 4
		if r := simulated(t, c, policy(t, "none")); r.LoadsAtOnce > 4 || r.LoadsAtOnce < 3 ||
			r.LoadWait == 0 {
			t.Errorf("%d keys one by one: %d loads at once, the origin runs 4; they wait for %v",
				r.OneByOne, r.LoadsAtOnce, time.Duration(r.LoadWait))
		}
	}
}

// TestMessagesCost: each process hears each message, and Redis sends them.
func TestMessagesCost(t *testing.T) {
	c := calm()
	few := simulated(t, c, policy(t, "lease"))
	c.Replicas = 1000
	many := simulated(t, c, policy(t, "lease"))
	near(t, "messages for each load", float64(few.Messages)/float64(few.Loads), 10, 0.05)
	near(t, "with 100 times as many processes", float64(many.Messages)/float64(many.Loads), 1000, 5)
	if many.RedisBusyMean < few.RedisBusyMean+1000*c.Costs.Message.Seconds()/11 {
		t.Errorf("Redis is busy for %v with 1000 processes, %v with 10", many.RedisBusyMean,
			few.RedisBusyMean)
	}
}

func TestTooManyStepsCutARunShort(t *testing.T) {
	c := mixed()
	c.Steps = 30_000
	r := simulated(t, c, policy(t, "lease"))
	if r.Until >= c.Time || r.Until == 0 || math.Abs(float64(r.Open)) > 1000 {
		t.Errorf("cut short after %v, %d requests are open", r.Until, r.Open)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, c, policy(t, "lease")); err == nil {
		t.Error("a run goes on when its context has ended")
	}
}

func TestValidate(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	for i, change := range []func(*Config){
		func(c *Config) { c.Replicas = 0 }, func(c *Config) { c.Keys = 1e8 }, func(c *Config) {
			c.Low = 2 * c.High
		},
		func(c *Config) { c.TTL = time.Millisecond }, func(c *Config) {
			c.Time = 7 * 24 * time.Hour
			c.TTL = time.Second
		},
		func(c *Config) { c.Load = 2 * c.LoadTimeout }, func(c *Config) {
			c.Costs.Get = -1
		}, func(c *Config) {
			c.Budget = 0
		},
		func(c *Config) { c.Zipf = math.NaN() }, func(c *Config) { c.Jitter = 1 }, func(c *Config) {
			c.PollMost = 0
		},
	} {
		c := Default()
		change(&c)
		if _, err := Run(t.Context(), c, Policies[0]); err == nil {
			t.Errorf("configuration %d is accepted", i)
		}
	}
}
