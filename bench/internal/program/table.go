package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// printJSON prints the results of every command as JSON.
func printJSON(w io.Writer, what any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(what)
}

// sheet is the text output of every command: paragraphs, and tables between them.
type sheet struct {
	text  bytes.Buffer
	table *tabwriter.Writer // nil outside of a table
}

// say ends the current table, and adds text after it.
func (s *sheet) say(format string, args ...any) {
	if s.table != nil {
		_ = s.table.Flush() // this only writes to memory
		s.table = nil
	}
	fmt.Fprintf(&s.text, format, args...)
}

// columns begins a table whose cells are aligned at the right of their columns.
func (s *sheet) columns(heads ...any) { s.columnsAt(tabwriter.AlignRight, heads...) }

func (s *sheet) columnsAt(align uint, heads ...any) {
	s.say("")
	s.table = tabwriter.NewWriter(&s.text, 0, 0, 2, ' ', align)
	s.row(heads...)
}

// remark is a text after the last cell of a row. It has no column.
type remark string

// row adds a row to the current table.
func (s *sheet) row(cells ...any) {
	for _, c := range cells {
		fmt.Fprint(s.table, c)
		if _, ok := c.(remark); !ok {
			fmt.Fprint(s.table, "\t")
		}
	}
	fmt.Fprintln(s.table)
}

// printTo writes the whole sheet.
func (s *sheet) printTo(w io.Writer) error {
	s.say("")
	_, err := s.text.WriteTo(w)
	return err
}

// figure formats the median of the repetitions. If there is more than one repetition, it adds the
// smallest and the largest value.
func figure[T any](ts []T, format string, of func(T) float64) string {
	var values []float64
	for _, t := range ts {
		values = append(values, of(t))
	}
	switch len(values) {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf(format, values[0])
	}
	return fmt.Sprintf(format+" ("+format+"-"+format+")", median(values), slices.Min(values),
		slices.Max(values))
}

// ms formats a time of the repetitions in milliseconds.
func ms[T any](ts []T, of func(T) int64) string {
	return figure(ts, "%.2f", func(t T) float64 { return float64(of(t)) / 1e6 })
}

// spread is like ms, for a slice of times.
func spread(ns []int64) string { return ms(ns, func(n int64) int64 { return n }) }

func middle[T any](ts []T, of func(T) int64) int64 {
	values := make([]int64, len(ts))
	for i, t := range ts {
		values[i] = of(t)
	}
	return median(values)
}

// flat joins the slices that of returns for the elements.
func flat[T, E any](ts []T, of func(T) []E) (all []E) {
	for _, t := range ts {
		all = append(all, of(t)...)
	}
	return all
}

func total[T any](ts []T, of func(T) int) (sum int) {
	for _, t := range ts {
		sum += of(t)
	}
	return sum
}

// most returns the largest value, or notCounted if there are no elements.
func most[T any](ts []T, of func(T) int) int {
	most := notCounted
	for _, t := range ts {
		most = max(most, of(t))
	}
	return most
}

// ratio formats a divided by b.
func ratio(a, b int) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

func span(loads []int) string {
	least, most := slices.Min(loads), slices.Max(loads)
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d-%d", least, most)
}

func repetitions(n int) string {
	if n == 1 {
		return "1 repetition"
	}
	return fmt.Sprintf("%d repetitions", n)
}

// quantile returns the q-quantile of values, or 0 if there are no values. It doesn't change the
// order of values.
func quantile(values []int64, q float64) int64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// median returns the median of values. For an even number of values this is the mean of the two in
// the middle. Without values it returns 0.
func median[T int64 | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
