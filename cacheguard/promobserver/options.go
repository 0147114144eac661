package promobserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

// Options configures an Observer. The zero value of a field means its default.
type Options struct {
	// Namespace is the first part of each metric's name. The dashboard in grafana.json uses the
	// default. Default "cacheguard".
	Namespace string

	// ConstLabels are added to every metric. They must not have the names of this package's own
	// labels: cache, result, outcome, cause, reason, le. Default: none.
	ConstLabels prometheus.Labels

	// Buckets are the upper bounds of the histograms' buckets, in seconds, ascending. Default: from
	// 1 ms to 30 s.
	Buckets []float64

	// Exemplar returns labels that connect an observation in a histogram with its trace, such as
	// {"trace_id": ...} of the span in ctx, or nil. For a load, ctx is the load's ctx. For the wait
	// of a caller, it is the ctx of this caller. For the wait of the process for another one, it
	// has the values of the ctx of the caller that began this wait. Exemplar isn't called for loads
	// of an audit. If Prometheus refuses the labels, for example because they have more than 128
	// characters, the observation has no labels. Default: no exemplars.
	Exemplar func(ctx context.Context, e cacheguard.Event) prometheus.Labels
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// withDefaults returns the options with every default filled in, or an error that joins the errors
// of all options.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Namespace == "" {
		o.Namespace = "cacheguard"
	}
	if !metricName.MatchString(o.Namespace) {
		errs = append(errs,
			fmt.Errorf("promobserver: Options.Namespace %q is no name of a metric", o.Namespace))
	}
	own := []string{"cache", "le"}
	for _, m := range eventcount.Metrics {
		own = append(own, m.Label)
	}
	o.ConstLabels = maps.Clone(o.ConstLabels)
	for _, name := range slices.Sorted(maps.Keys(o.ConstLabels)) {
		switch {
		case name != "" && slices.Contains(own, name):
			errs = append(errs,
				fmt.Errorf("promobserver: Options.ConstLabels has %q, which metrics have themselves",
					name))
		case !labelName.MatchString(name) || strings.HasPrefix(name, "__"):
			errs = append(errs,
				fmt.Errorf("promobserver: Options.ConstLabels has %q, which is no name of a label",
					name))
		}
	}
	if o.Buckets == nil {
		o.Buckets = eventcount.Buckets
	}
	o.Buckets = slices.Clone(o.Buckets)
	for i, b := range o.Buckets {
		if i > 0 && !(b > o.Buckets[i-1]) { // this condition is also true if a bound is NaN
			errs = append(errs,
				fmt.Errorf("promobserver: Options.Buckets %v don't ascend", o.Buckets))
			break
		}
	}
	return o, errors.Join(errs...)
}
