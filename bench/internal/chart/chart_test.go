package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
)

func TestScales(t *testing.T) {
	for _, c := range []struct {
		values []float64
		log    bool
		v, at  float64
	}{
		{[]float64{3, 80}, false, 50, 50}, // up to 100
		{[]float64{3, 80}, false, 0, 0},
		{[]float64{0, 0}, false, 0, 0},
		{nil, false, 1, 100},
		{[]float64{0.3, 80}, true, 0.1, 0}, // from 0.1 to 100
		{[]float64{0.3, 80}, true, 100, 100},
		{[]float64{0.3, 80}, true, 1, 100.0 / 3},
		{[]float64{0.3, 80}, true, 0, 0},
		{[]float64{10, 10}, true, 10, 0},
		{[]float64{0}, true, 0, 0},
	} {
		if got := newScale(c.values, 100, c.log).at(c.v); math.Abs(got-c.at) > 1e-9 {
			t.Errorf("%v (log %v): %v is at %v, want %v", c.values, c.log, c.v, got, c.at)
		}
	}
	for most, want := range map[float64]int{1: 6, 20: 5, 3.95: 4} { // 0.2, 5, 1
		if got := (scale{most: most, length: 1}).ticks(); len(got) != want {
			t.Errorf("up to %v: %v", most, got)
		}
	}
	for v, want := range map[float64]string{
		0: "0", 0.1234: "0.123", 99.5: "99.5", 1234: "1234", 45678: "45.7k", 2.5e6: "2.5M",
	} {
		if got := short(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}

func bars() Bars {
	return Bars{Title: `p99 of <none> & "others"`, Unit: "ms", Names: []string{"p50", "p99"},
		Rows: []Row{
			{Label: "none", Values: []float64{10, 40}},
			{Label: "a <b>", Values: []float64{5, 80}, Note: "loads & loads"},
		}}
}

func lines() Lines {
	return Lines{Title: "commands", X: "processes", Y: "commands", Series: []Series{
		{Name: "one", Points: []Point{{1, 10}, {2, 20}, {4, 40}}},
		{Name: "other", Points: []Point{{1, 5}, {4, 5}}},
	}}
}

// Bars have the right lengths.
func TestBars(t *testing.T) {
	rects := regexp.MustCompile(`<rect class="s(\d)" x="170" y="[\d.]+" width="([\d.]+)"`).
		FindAllStringSubmatch(string(bars().SVG()), -1)
	var got []string
	for _, r := range rects {
		got = append(got, r[1]+":"+r[2])
	}
	// 490 is the length for 100.
	if want := "0:49.0 1:196.0 0:24.5 1:392.0"; strings.Join(got, " ") != want {
		t.Errorf("bars of %v, want %s", got, want)
	}
}

func TestLines(t *testing.T) {
	paths := regexp.MustCompile(` d="([^"]*)"`).FindAllStringSubmatch(string(lines().SVG()), -1)
	// x from 56 (0) to 704 (4), y from 248 (0) up to 28 (50)
	if len(paths) != 2 || paths[0][1] != "M218.0 204.0L380.0 160.0L704.0 72.0" ||
		paths[1][1] != "M218.0 226.0L704.0 226.0" {
		t.Errorf("%q", paths)
	}
	table := lines().Table()
	if len(table.Rows) != 3 || strings.Join(table.Rows[1], "|") != "2|20|" ||
		strings.Join(table.Rows[2], "|") != "4|40|5" {
		t.Errorf("%+v", table)
	}
}

// The page is one file, and loads nothing from other servers. It has each figure also as a table,
// and is well formed for any names.
func TestPage(t *testing.T) {
	var out bytes.Buffer
	page := Page{Title: "a <title>", Intro: []string{"It was <measured>."},
		Sections: []Section{{Title: "One", Figures: []Figure{
			{Caption: "bars", Chart: bars()}, {Caption: "lines", Chart: lines()},
			{Caption: "nothing", Chart: Bars{}},
			{Caption: "nothing", Chart: Lines{LogX: true, LogY: true}},
		}}}}
	if err := WritePage(&out, page); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, bad := range []string{"http://", "https://", "<script", "<none>", "<b>", "<title>,"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if n := strings.Count(text, "<table>"); n != 4 {
		t.Errorf("%d tables", n)
	}
	var picture bytes.Buffer
	if err := WritePicture(&picture, lines()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(picture.String(), "<svg ") ||
		!strings.Contains(picture.String(), ".l0 { stroke") {
		t.Errorf("a picture of its own: %s", picture.String())
	}
	text += picture.String()
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1) {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%v in %s", err, svg)
				break
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("no number in %s", svg)
		}
	}
}
