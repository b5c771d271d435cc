package foreign

// ErrorRows returns the rows of errors.
func ErrorRows() (all []*Row) {
	for i := range errorTypes {
		all = append(all, &errorTypes[i].Row)
	}
	return all
}

// TextsOf returns the texts of the table that a text is known by, and without one, all.
func TextsOf(text string) (texts []string) {
	for _, r := range textRows {
		if text == "" || r.is(text, r.means&-r.means) {
			texts = append(texts, r.text)
		}
	}
	return texts
}
