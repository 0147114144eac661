package chart

import (
	_ "embed"
	"html/template"
	"io"
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

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// WritePage writes one file that a browser shows without anything else.
func WritePage(w io.Writer, p Page) error { return pageTemplate.Execute(w, p) }
