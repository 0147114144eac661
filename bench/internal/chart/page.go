package chart

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Page is what WritePage writes.
type Page struct {
	Title    string
	Intro    []string // paragraphs
	Sections []Section
}

// Section is a part of a page.
type Section struct {
	Title   string
	Text    []string // paragraphs
	Figures []Figure
}

// Figure is a picture with a line about it.
type Figure struct {
	Caption string
	Chart   Chart
}

// Chart is Bars or Lines.
type Chart interface {
	SVG() template.HTML
	Table() Table
}

// Table is the figures of a chart.
type Table struct {
	Head []string
	Rows [][]string
}

//go:embed page.html
var pageText string

// style has the colours, by which pictures are drawn in light and dark.
//
//go:embed style.css
var style string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// WritePage writes one file that a browser shows without anything else.
func WritePage(w io.Writer, p Page) error {
	return pageTemplate.Execute(w, struct {
		Page
		Style template.CSS
	}{p, template.CSS(style)})
}

// WritePicture writes a chart as an SVG file of its own, for a page that is somewhere else.
func WritePicture(w io.Writer, c Chart) error {
	head, content, _ := strings.Cut(string(c.SVG()), ">")
	_, err := fmt.Fprintf(w, "%s xmlns=\"http://www.w3.org/2000/svg\"><style>\n%ssvg { font: 11px system-ui, sans-serif; background: var(--paper); }\n</style>%s\n",
		head, style, content)
	return err
}
