package chart

import (
	"fmt"
	"html/template"
	"strings"
)

// Bars are horizontal bars: for each row one bar for each name.
type Bars struct {
	Title string
	Unit  string
	Log   bool     // use a logarithmic scale, for rows that differ by orders of magnitude
	Names []string // the names of a row's bars
	Rows  []Row
}

// Row is one row of bars.
type Row struct {
	Label  string
	Values []float64 // one for each of Names
	Note   string    // text at the end of the row
}

const barHeight = 9

// SVG draws the bars.
func (c Bars) SVG() template.HTML {
	var all []float64
	for _, r := range c.Rows {
		all = append(all, r.Values...)
	}
	const right = 60 // the space for the number at a bar's end
	s := newScale(all, width-labelWidth-right, c.Log)
	var b, grid strings.Builder // the grid is behind the bars
	y := 4.0
	if len(c.Names) > 1 {
		y = legend(&grid, c.Names, y) + 4
	}
	top := y
	for _, r := range c.Rows {
		height := float64(len(r.Values))*(barHeight+1) + 8
		if r.Note != "" {
			height += lineHeight - 4
		}
		fmt.Fprintf(&b, `<text class="label" x="%d" y="%.1f" text-anchor="end">%s</text>`,
			labelWidth-8, y+9, esc(r.Label))
		for i, v := range r.Values {
			w := max(1, s.at(v))
			at := y + float64(i)*(barHeight+1)
			fmt.Fprintf(&b, `<rect class="s%d" x="%d" y="%.1f" width="%.1f" height="%d"/>`,
				i%colours, labelWidth, at, w, barHeight)
			fmt.Fprintf(&b, `<text class="value" x="%.1f" y="%.1f">%s</text>`, labelWidth+w+4,
				at+barHeight-1, short(v))
		}
		if r.Note != "" {
			fmt.Fprintf(&b, `<text class="note" x="%d" y="%.1f">%s</text>`, labelWidth,
				y+float64(len(r.Values))*(barHeight+1)+10, esc(r.Note))
		}
		y += height
	}
	for _, v := range s.ticks() {
		x := labelWidth + s.at(v)
		fmt.Fprintf(&grid, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x, x,
			top, y)
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x,
			y+12, short(v))
	}
	fmt.Fprintf(&b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, labelWidth-8,
		y+12, esc(c.Unit))
	return svg(c.Title, y+lineHeight, grid.String()+b.String())
}

// Table returns the values of the bars as a table.
func (c Bars) Table() Table {
	t := Table{Head: append([]string{""}, c.Names...)}
	for i := range c.Names {
		t.Head[i+1] = strings.TrimSpace(c.Names[i] + " " + c.Unit)
	}
	for _, r := range c.Rows {
		cells := []string{r.Label}
		for _, v := range r.Values {
			cells = append(cells, short(v))
		}
		t.Rows = append(t.Rows, append(cells, r.Note))
	}
	t.Head = append(t.Head, "")
	return t
}
