package chart

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Page is the content of a page that WritePage writes.
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

// Figure is a picture with a caption.
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

// style defines the colours of pictures for light and dark mode.
//
//go:embed style.css
var style string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// WritePage writes one file that a browser can show without any other file.
func WritePage(w io.Writer, p Page) error {
	return pageTemplate.Execute(w, struct {
		Page
		Style template.CSS
	}{p, template.CSS(style)})
}

// WritePicture writes a chart as a separate SVG file, for use on another page.
func WritePicture(w io.Writer, c Chart) error {
	head, content, _ := strings.Cut(string(c.SVG()), ">")
	_, err := fmt.Fprintf(w,
		"%s xmlns=\"http://www.w3.org/2000/svg\"><style>\n%ssvg { font: 11px system-ui, sans-serif; background: var(--paper); }\n</style>%s\n",
		head, style, content)
	return err
}
