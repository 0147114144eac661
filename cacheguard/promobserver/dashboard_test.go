package promobserver_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/promobserver"
)

// The dashboard shows every metric that is exported, and no other, by labels that they have.
func TestDashboard(t *testing.T) {
	o := newObserver(t, promobserver.Options{})
	o.Attach("a", func() cacheguard.Stats { return cacheguard.Stats{Compared: 1} })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]map[string]bool{} // by the name in an expression
	family := map[string]string{}
	for _, f := range families {
		has := map[string]bool{"job": true}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				has[l.GetName()] = true
			}
		}
		names := []string{f.GetName()}
		if f.GetMetric()[0].GetHistogram() != nil {
			names = []string{f.GetName() + "_bucket", f.GetName() + "_count", f.GetName() + "_sum"}
			has["le"] = true
		}
		for _, name := range names {
			labels[name], family[name] = has, f.GetName()
		}
	}

	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(promobserver.Dashboard, &dashboard); err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`\b(cacheguard_\w+)\{([^}]*)\}`)
	label := regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouped := regexp.MustCompile(`by \(([^)]*)\)`)
	shown, ids := map[string]bool{}, map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the id %d of another one", p.Title, p.ID)
		}
		ids[p.ID] = true
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			found := metric.FindAllStringSubmatch(target.Expr, -1)
			if n := strings.Count(target.Expr, "cacheguard_"); len(found) != n || n == 0 {
				t.Errorf("panel %q: %d of %d metrics in %s are understood", p.Title, len(found), n,
					target.Expr)
			}
			for _, m := range found {
				name := m[1]
				if labels[name] == nil {
					t.Errorf("panel %q shows %s, which is not exported", p.Title, name)
					continue
				}
				shown[family[name]] = true
				for _, l := range label.FindAllStringSubmatch(m[2], -1) {
					if !labels[name][l[1]] {
						t.Errorf("panel %q chooses by %s, which %s doesn't have", p.Title, l[1],
							name)
					}
				}
				for _, by := range grouped.FindAllStringSubmatch(target.Expr, -1) {
					for l := range strings.SplitSeq(by[1], ",") {
						if !labels[name][strings.TrimSpace(l)] {
							t.Errorf("panel %q groups by %s, which %s doesn't have", p.Title, l,
								name)
						}
					}
				}
			}
		}
	}
	for _, f := range families {
		if !shown[f.GetName()] {
			t.Errorf("no panel shows %s", f.GetName())
		}
	}
}
