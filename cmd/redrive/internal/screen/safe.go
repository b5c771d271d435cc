package screen

import "github.com/watermill-spillway/spillway/internal/text/printable"

// Text returns s as one line that a terminal prints and never obeys.
func Text(s string) string { return printable.Text(s) }

// Block is Text for several lines: it keeps line ends and tabs.
func Block(s string) string { return printable.Block(s) }

// Cell returns s for a cell of a spreadsheet, which takes it for no formula.
func Cell(s string) string { return printable.Cell(s) }

// text returns s for one line: without secrets, and safe.
func (s *Screen) text(text string) string { return Text(s.Privacy.Text(text)) }

// block returns s for several lines: without secrets, and safe.
func (s *Screen) block(text string) string { return Block(s.Privacy.Text(text)) }

// mask masks the cells of a table.
func (s *Screen) mask(t *Table) {
	for _, row := range t.rows {
		for i := range row {
			row[i].Text = s.Privacy.Text(row[i].Text)
		}
	}
}
