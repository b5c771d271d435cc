package screen

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/watermill-spillway/spillway/internal/operate/printable"
)

// Column is a column of a Table.
type Column struct {
	Name  string
	Right bool // numbers
	// Min is the width below which the column is not cut. 0 means that it is never cut.
	Min int
	// Drop says which columns are left out first on a narrow terminal: the highest ones. 0 means never.
	Drop int
	// Extra columns are left out before another column is cut to less than can be read well.
	Extra bool
	Style Style
}

// readable is the width in which a text can be read well.
const readable = 20

// Table is rows under columns.
type Table struct {
	Columns []Column
	rows    [][]Span
}

// Span is a text in a style.
type Span struct {
	Text  string
	Style Style
}

// Row adds a row. A cell is a string, a Span, or a value that fmt prints.
func (t *Table) Row(cells ...any) {
	row := make([]Span, len(t.Columns))
	for i, cell := range cells {
		span, ok := cell.(Span)
		if !ok {
			span = Span{fmt.Sprint(cell), t.Columns[i].Style}
		}
		span.Text = Text(span.Text)
		row[i] = span
	}
	t.rows = append(t.rows, row)
}

// Trim leaves out the cells that have no column.
func (t *Table) Trim() {
	for i := range t.rows {
		t.rows[i] = t.rows[i][:len(t.Columns)]
	}
}

// Table prints a table.
func (s *Screen) Table(t *Table) {
	s.mask(t)
	if !s.Terminal() {
		for _, row := range t.rows {
			cells := make([]string, len(row))
			for i, cell := range row {
				cells[i] = s.styled(cell.Style, cell.Text)
			}
			fmt.Fprintln(s.Out, strings.Join(cells, "\t"))
		}
		return
	}
	widths := t.fit(s.columns())
	header := make([]Span, len(t.Columns))
	for i, column := range t.Columns {
		header[i] = Span{column.Name, Bold}
	}
	for _, row := range append([][]Span{header}, t.rows...) {
		s.row(t, row, widths)
	}
}

func (s *Screen) row(t *Table, row []Span, widths []int) {
	var line strings.Builder
	var gap string
	last := 0
	for i, w := range widths {
		if w > 0 {
			last = i
		}
	}
	for i, cell := range row {
		if widths[i] == 0 {
			continue
		}
		text := cut(cell.Text, widths[i])
		padded := pad(text, widths[i], t.Columns[i].Right)
		if i == last && !t.Columns[i].Right {
			padded = text
		}
		line.WriteString(gap + s.styled(cell.Style, padded))
		gap = "  "
	}
	fmt.Fprintln(s.Out, strings.TrimRight(line.String(), " "))
}

// fit returns the width of each column so that all fit into so many columns of the terminal. 0 leaves a column out.
func (t *Table) fit(most int) []int {
	full := make([]int, len(t.Columns))
	for i, column := range t.Columns {
		full[i] = columnsOf(column.Name)
		for _, row := range t.rows {
			full[i] = max(full[i], columnsOf(row[i].Text))
		}
	}
	for {
		extra := t.least(full, true)
		widths := t.cut(full, most, extra >= 0) // what a column leaves that is left out, the others have
		if over(widths) <= most {
			return widths
		}
		if extra < 0 {
			if extra = t.least(full, false); extra < 0 {
				return widths
			}
		}
		full[extra] = 0
	}
}

// cut returns widths that are cut, one by one, until they fit or nothing is left to cut.
func (t *Table) cut(full []int, most int, readably bool) []int {
	widths := slices.Clone(full)
	for over(widths) > most {
		i := t.widest(widths, readably)
		if i < 0 {
			break
		}
		widths[i]--
	}
	return widths
}

func over(widths []int) (sum int) {
	for _, w := range widths {
		if w > 0 {
			sum += w + 2
		}
	}
	return sum - 2
}

// widest is the widest column that can still be cut.
func (t *Table) widest(widths []int, readably bool) int {
	best := -1
	for i, w := range widths {
		c := &t.Columns[i]
		least := max(c.Min, columnsOf(c.Name))
		if readably {
			least = max(least, readable)
		}
		if c.Min > 0 && w > least && (best < 0 || w > widths[best]) {
			best = i
		}
	}
	return best
}

// least is the least important column that is still there, of the extra ones or of all.
func (t *Table) least(widths []int, extra bool) int {
	best := -1
	for i, w := range widths {
		c := &t.Columns[i]
		if w > 0 && c.Drop > 0 && (c.Extra || !extra) && (best < 0 || c.Drop > t.Columns[best].Drop) {
			best = i
		}
	}
	return best
}

// columnsOf is how many columns of a terminal a text takes.
func columnsOf(s string) (n int) {
	for _, r := range s {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	if r < 0x80 {
		return 1
	}
	if unicode.Is(unicode.M, r) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut returns s within n columns, with an ellipsis if something is missing.
func cut(s string, n int) string {
	if columnsOf(s) <= n {
		return s
	}
	var b strings.Builder
	left := n - 1
	for _, r := range s {
		if left -= columnsOfRune(r); left < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// pad fills s up to n columns, on its left side if right is set.
func pad(s string, n int, right bool) string {
	spaces := strings.Repeat(" ", max(0, n-columnsOf(s)))
	if right {
		return spaces + s
	}
	return s + spaces
}

// Text returns s as one line that a terminal prints and never obeys.
func Text(s string) string { return printable.Text(s) }

// Block is Text for several lines: it keeps line ends and tabs.
func Block(s string) string { return printable.Block(s) }

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
