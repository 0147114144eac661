// Package chart draws the benchmark's figures as SVG, and puts them on a page. The page needs no
// script and no network. It can be read in light and dark mode, and also without seeing the
// pictures, because each picture has a table with its figures below it.
package chart

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

const (
	width      = 720
	labelWidth = 170 // the width of the labels at the left of bars
	lineHeight = 16
)

// esc escapes markup in a text.
func esc(s string) string { return template.HTMLEscapeString(s) }

// scale maps values to a length.
type scale struct {
	least, most float64
	length      float64
	log         bool
}

// newScale returns a scale that begins at 0. With log it begins at the decade below the least
// value.
func newScale(values []float64, length float64, log bool) scale {
	s := scale{length: length, log: log, most: 1}
	least := math.Inf(1)
	for i, v := range values {
		if i == 0 || v > s.most {
			s.most = v
		}
		if v > 0 {
			least = min(least, v)
		}
	}
	if s.most <= 0 {
		s.most = 1
	}
	if !log {
		s.most = rounded(s.most)
		return s
	}
	if math.IsInf(least, 1) {
		least = s.most
	}
	s.least = math.Pow(10, math.Floor(math.Log10(least)))
	s.most = math.Pow(10, math.Ceil(math.Log10(s.most)))
	if s.most <= s.least {
		s.most = s.least * 10
	}
	return s
}

// rounded returns the next number that is 1, 2, 2.5 or 5 times a power of ten.
func rounded(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 2.5, 5, 10} {
		if v <= step*decade*(1+1e-9) {
			return step * decade
		}
	}
	return 10 * decade
}

// at returns the position of a value. A value below the scale is at the scale's beginning.
func (s scale) at(v float64) float64 {
	if !s.log {
		return s.length * max(0, v) / s.most
	}
	if v <= s.least {
		return 0
	}
	return s.length * math.Log(v/s.least) / math.Log(s.most/s.least)
}

// ticks returns the values that are written beside the scale.
func (s scale) ticks() []float64 {
	var all []float64
	if s.log {
		for v := s.least; v <= s.most*1.0001; v *= 10 {
			all = append(all, v)
		}
		return all
	}
	step := rounded(s.most / 5)
	for i := 0; float64(i)*step <= s.most*(1+1e-9); i++ {
		all = append(all, float64(i)*step)
	}
	return all
}

// short formats a number for people.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M"
	case math.Abs(v) >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k"
	case math.Abs(v) >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// svg returns a picture of the given height. The title describes the picture to people who don't
// see it.
func svg(title string, height float64, content string) template.HTML {
	return template.HTML(
		fmt.Sprintf(`<svg viewBox="0 0 %d %.0f" role="img" aria-label="%s">%s</svg>`, width, height,
			esc(title), content))
}

// legend writes the names of the colours from y on, in one or several rows, and returns the y below
// the last row.
func legend(b *strings.Builder, names []string, y float64) float64 {
	x := 0.0
	for i, name := range names {
		w := 24 + 7.2*float64(len(name))
		if x > 0 && x+w > width {
			x, y = 0, y+lineHeight
		}
		fmt.Fprintf(b,
			`<rect class="s%d" x="%.1f" y="%.1f" width="10" height="10"/><text x="%.1f" y="%.1f">%s</text>`,
			i%colours, x, y, x+14, y+9, esc(name))
		x += w
	}
	return y + lineHeight
}

// colours is the number of colours. The page's style defines them.
const colours = 8
