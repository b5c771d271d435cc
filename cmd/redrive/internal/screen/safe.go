package screen

import "github.com/watermill-spillway/spillway/internal/printable"

// Text returns s as one line that a terminal prints and never obeys.
func Text(s string) string { return printable.Text(s) }

// Block is Text for several lines: it keeps line ends and tabs.
func Block(s string) string { return printable.Block(s) }

// Cell returns s for a cell of a spreadsheet, which takes it for no formula.
func Cell(s string) string { return printable.Cell(s) }
