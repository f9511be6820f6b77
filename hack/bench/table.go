package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// table is one in Markdown, whose columns are aligned so that it can be read as it is.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		for i, w := range widths {
			cell := ""
			if i < len(cells) {
				cell = cells[i]
			}
			fmt.Fprintf(&b, "| %s%s ", cell, strings.Repeat(" ", w-utf8.RuneCountInString(cell)))
		}
		b.WriteString("|\n")
	}
	line(t.head)
	for _, w := range widths {
		b.WriteString("|" + strings.Repeat("-", w+2))
	}
	b.WriteString("|\n")
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// show is a median and, of more than one value, the smallest and the largest. Format is
// that of one of them.
func (s series) show(format string) string {
	if len(s) == 0 {
		return "–"
	}
	text := fmt.Sprintf(format, s.median())
	if len(s) == 1 {
		return text
	}
	return fmt.Sprintf("%s (%s–%s)", text, fmt.Sprintf(format, s.min()), fmt.Sprintf(format, s.max()))
}
