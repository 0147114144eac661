package program

import (
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/chart"
)

// slice is the time of which a point of the timeline tells.
const slice = 100 * time.Millisecond

// timeline is the longest that requests took which arrived in each slice of time, and where loads
// began.
func timeline(name string, seen sight) (waits, loads chart.Series) {
	n := int((seen.End - seen.Start + int64(slice) - 1) / int64(slice))
	longest, begun := make([]int64, n), make([]int, n)
	for q := range seen.requests(period{seen.Start, seen.End}) {
		i := (q.Due - seen.Start) / int64(slice)
		longest[i] = max(longest[i], q.Latency)
	}
	for _, l := range seen.Loads {
		if l.Begin >= seen.Start && l.Begin < seen.End {
			begun[(l.Begin-seen.Start)/int64(slice)]++
		}
	}
	waits, loads = chart.Series{Name: name}, chart.Series{Name: name}
	total := 0
	for i := range n {
		x := (float64(i) + 0.5) * slice.Seconds()
		waits.Points = append(waits.Points, chart.Point{X: x, Y: float64(longest[i]) / 1e6})
		total += begun[i]
		loads.Points = append(loads.Points, chart.Point{X: x, Y: float64(total)})
	}
	return waits, loads
}

// section is the expiry of a hot key for a browser: one repetition of each protection.
func (p expiryPlan) section(seen map[string]sight) chart.Section {
	waits := chart.Lines{Title: "the longest wait over time", X: "seconds", Y: "ms", LogY: true}
	loads := chart.Lines{Title: "loads over time", X: "seconds", Y: "loads"}
	for _, name := range p.Protections {
		if s, ok := seen[name]; ok {
			w, l := timeline(name, s)
			waits.Series, loads.Series = append(waits.Series, w), append(loads.Series, l)
		}
	}
	return chart.Section{
		Title: "A hot key that expires again and again",
		Text: []string{fmt.Sprintf("%d processes, %d requests a second in each whether or not earlier ones have been answered, a time to live of %v, a load of %v. Each point is the longest that any request took which was to arrive in that tenth of a second.",
			p.Processes, p.Rate, p.TTL, p.Load)},
		Figures: []chart.Figure{
			{Caption: "The longest wait of each tenth of a second, from when a request was to arrive.", Chart: waits},
			{Caption: "Loads of the origin since the beginning.", Chart: loads},
		},
	}
}
