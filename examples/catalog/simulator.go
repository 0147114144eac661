package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/simulate"
)

const (
	// mostSimulations is the number of simulations that may run at once, because each uses a whole
	// processor. A simulation takes some seconds at most, because each policy gets at most
	// simulatedSteps steps.
	mostSimulations = 2
	simulatedSteps  = 1_500_000

	// simulatedTime is the time that a simulation covers. The result shows it in slices. In the
	// middle Redis can't be reached for a while.
	simulatedTime   = time.Hour
	simulatedSlices = 120
)

// simulate simulates the fleet that the URL describes, once without protection and once with the
// policy that the URL names, and answers with both results. If this policy is the one without
// protection, there is only one result. Compiled to WebAssembly the simulator could run in the
// browser. But then it would have to be built before the shop, or its binary would have to be in
// the repository.
func (l *laboratory) simulate(w http.ResponseWriter, r *http.Request) {
	c, policies, err := simulated(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.ContentLength != 0 {
		refuse(w, http.StatusBadRequest,
			"the settings of a simulation are those of its address: want no body")
		return
	}
	select {
	case l.simulations <- struct{}{}:
		defer func() { <-l.simulations }()
	default:
		w.Header().Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable,
			fmt.Sprintf("%d simulations go on already: try again in a few seconds",
				mostSimulations))
		return
	}
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	go l.untilStopped(ctx, end)
	var results []simulate.Result
	for _, p := range policies {
		result, err := simulate.Run(ctx, c, p)
		switch {
		case r.Context().Err() != nil: // the client has left
			return
		case errors.Is(context.Cause(ctx), errStopping):
			refuse(w, http.StatusServiceUnavailable, errStopping.Error())
			return
		case err != nil:
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		results = append(results, result)
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, map[string]any{"plan": c, "results": results})
}

// simulated reads the settings of a simulation. Its error names all invalid settings.
func simulated(query url.Values) (c simulate.Config, policies []simulate.Policy, err error) {
	c = simulate.Default()
	c.Replicas, c.Keys, c.High, c.TTL, c.Load = 50, 200, 5000, time.Minute, 500*time.Millisecond
	c.Time, c.FailoverAt, c.Deploys = simulatedTime, simulatedTime/2, 0
	c.OneByOne, c.Steps, c.Slices = 100_000, simulatedSteps, simulatedSlices
	policy := "early"
	var errs []error
	for name := range query {
		value := query.Get(name)
		var wrong error
		switch name {
		case "replicas":
			c.Replicas, wrong = strconv.Atoi(value)
		case "rate":
			c.High, wrong = strconv.ParseFloat(value, 64)
		case "load":
			c.Load, wrong = time.ParseDuration(value)
		case "ttl":
			c.TTL, wrong = time.ParseDuration(value)
		case "policy":
			policy = value
		default:
			wrong = errors.New("there is no such setting")
		}
		if wrong != nil || len(query[name]) > 1 {
			errs = append(errs, fmt.Errorf("%q=%q can't be understood", name, query[name]))
		}
	}
	c.Low = c.High
	i := slices.IndexFunc(simulate.Policies, func(p simulate.Policy) bool {
		return p.Name == policy
	})
	if i < 0 {
		errs = append(errs,
			fmt.Errorf("policy %q is none of %s", policy, strings.Join(policyNames(), ", ")))
	}
	if err := errors.Join(append(errs, c.Validate())...); err != nil {
		return c, nil, err
	}
	policies = simulate.Policies[:1]
	if i > 0 {
		policies = []simulate.Policy{policies[0], simulate.Policies[i]}
	}
	return c, policies, nil
}

func policyNames() (all []string) {
	for _, p := range simulate.Policies {
		all = append(all, p.Name)
	}
	return all
}
