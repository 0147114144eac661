package chart

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// Lines are curves over a common axis.
type Lines struct {
	Title  string
	X, Y   string // the quantities on the axes, with their units
	LogX   bool
	LogY   bool
	Series []Series
}

// Series is one curve.
type Series struct {
	Name   string
	Points []Point
}

// Point is one point of a curve.
type Point struct{ X, Y float64 }

// SVG draws the curves.
func (c Lines) SVG() template.HTML {
	const left, height, bottom = 56, 220, 34
	var xs, ys []float64
	var names []string
	for _, s := range c.Series {
		names = append(names, s.Name)
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	x, y := newScale(xs, width-left-16, c.LogX), newScale(ys, height, c.LogY)
	if !c.LogX && len(xs) > 0 {
		x.most = slices.Max(xs) // the axis ends with the curves
	}
	var b strings.Builder
	top := legend(&b, names, 4) + 8
	for _, v := range y.ticks() {
		at := top + height - y.at(v)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, width-16,
			at, at)
		fmt.Fprintf(&b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, left-6,
			at+4, short(v))
	}
	for _, v := range x.ticks() {
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			left+x.at(v), top+height+14, short(v))
	}
	fmt.Fprintf(&b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, width-16,
		top+height+bottom-4, esc(c.X))
	fmt.Fprintf(&b, `<text class="tick" x="0" y="%.1f">%s</text>`, top+height+bottom-4, esc(c.Y))
	for i, s := range c.Series {
		var path strings.Builder
		for k, p := range s.Points {
			command := "L"
			if k == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, left+x.at(p.X), top+height-y.at(p.Y))
		}
		fmt.Fprintf(&b, `<path class="line l%d" d="%s"/>`, i%colours, path.String())
		if len(s.Points) <= 40 {
			for _, p := range s.Points {
				fmt.Fprintf(&b, `<circle class="s%d" cx="%.1f" cy="%.1f" r="3"/>`, i%colours,
					left+x.at(p.X), top+height-y.at(p.Y))
			}
		}
	}
	return svg(c.Title, top+height+bottom, b.String())
}

// mostRows is the largest number of rows in the table of the curves.
const mostRows = 60

// Table returns the points of all curves as a table, in the order of X. If there are more than
// mostRows values of X, it leaves rows out at regular intervals.
func (c Lines) Table() Table {
	t := Table{Head: []string{c.X}}
	at := map[float64][]string{}
	var xs []float64
	for i, s := range c.Series {
		t.Head = append(t.Head, s.Name)
		for _, p := range s.Points {
			if at[p.X] == nil {
				at[p.X] = make([]string, len(c.Series))
				xs = append(xs, p.X)
			}
			at[p.X][i] = short(p.Y)
		}
	}
	slices.Sort(xs)
	step := max(1, (len(xs)+mostRows-1)/mostRows)
	for i := 0; i < len(xs); i += step {
		t.Rows = append(t.Rows, append([]string{short(xs[i])}, at[xs[i]]...))
	}
	return t
}
