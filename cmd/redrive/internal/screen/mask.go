package screen

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
